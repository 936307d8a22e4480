"""The page /api for people, made from the OpenAPI document: plain HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Json = Mapping[str, Any]
MULTIPART, JSON_BODY = "multipart/form-data", "application/json"
EXAMPLES = {
    "frame": "@photo.jpg",
    "video": "@mug.mp4",
    "frames": "@photo.jpg",
    "file": "@kitchen.pv",
}
ADDRESS = "http://127.0.0.1:8765"


def api_page(document: Json) -> str:
    """Return the page: every request with its fields, its answers and a command to try.

    Args:
        document: The OpenAPI document of the service.
    """
    sections = [_operation(document, *one) for one in _operations(document)]
    schemas = [_schema(name, one) for name, one in document["components"]["schemas"].items()]
    index = "".join(
        f'<li><a href="#{_anchor(method, path)}"><b>{method.upper()}</b> {escape(path)}</a> '
        f"{_prose(operation['description'].split(chr(10) * 2)[0])}</li>"
        for method, path, operation in _operations(document)
    )
    text = "".join(
        f"<p>{_prose(part)}</p>" for part in document["info"]["description"].split("\n\n")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>primavista: the HTTP interface</title>"
        '<link rel="stylesheet" href="/page/api.css"></head><body><main>'
        f"<h1>The HTTP interface</h1>{text}"
        "<p>A refused request has a 4xx status and the body "
        '<code>{"detail": "the reason"}</code>. If the service was started with a token, every '
        "request carries it: <code>Authorization: Bearer TOKEN</code>. For programs, the same is "
        "in <code>/api/openapi.json</code>.</p>"
        f"<ul>{index}</ul>{''.join(sections)}<h2>Objects</h2>{''.join(schemas)}"
        "</main></body></html>"
    )


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def _operation(document: Json, method: str, path: str, operation: Json) -> str:
    fields = [
        (one["name"], one["in"], one.get("required", False), one["schema"], one)
        for one in operation.get("parameters", ())
    ]
    kind, body = _body(document, operation)
    required = body.get("required", ())
    where = "form" if kind == MULTIPART else "JSON"
    for name, schema in body.get("properties", {}).items():
        fields.append((name, where, name in required, schema, schema))
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{place}</td>"
        f"<td>{'yes' if needed else ''}</td><td>{_type(schema)}</td>"
        f"<td>{_prose(str(told.get('description', '')))}</td></tr>"
        for name, place, needed, schema, told in fields
    )
    head = "<tr><th>field</th><th>in</th><th>required</th><th>type</th><th></th></tr>"
    table = f"<table>{head}{rows}</table>" if rows else ""
    answers = "".join(_answer(status, one) for status, one in operation["responses"].items())
    told = "".join(
        f"<p>{_prose(part)}</p>" for part in operation.get("description", "").split("\n\n") if part
    )
    return (
        f'<section id="{_anchor(method, path)}">'
        f"<h2><b>{method.upper()}</b> {escape(path)}</h2>{told}"
        f"{table}<pre>{escape(_command(method, path, kind, body))}</pre>"
        f"<table><tr><th>answer</th><th></th><th></th></tr>{answers}</table></section>"
    )


def _answer(status: str, answer: Json) -> str:
    contents = answer.get("content", {})
    schemas = [_type(one["schema"]) for one in contents.values() if one.get("schema")]
    return (
        f"<tr><td>{escape(status)}</td><td>{', '.join(schemas)}</td>"
        f"<td>{_prose(str(answer.get('description', '')))}</td></tr>"
    )


def _body(document: Json, operation: Json) -> tuple[str, Json]:
    """Return the media type of the body of a request and its schema; both empty without a body."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        if "$ref" in schema:
            return kind, document["components"]["schemas"][_name(schema)]
        return kind, schema
    return "", {}


def _schema(name: str, schema: Json) -> str:
    if name.startswith("Body_"):  # the fields of a form are beside the request
        return ""
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(one)}</td>"
        f"<td>{'' if field in required else 'optional'}</td>"
        f"<td>{_prose(str(one.get('description', '')))}</td></tr>"
        for field, one in schema.get("properties", {}).items()
    )
    told = _prose(str(schema.get("description", "")).replace("\n\n", " "))
    return (
        f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3><p>{told}</p>'
        f"<table>{rows}</table></section>"
    )


def _type(schema: Json) -> str:
    """Return the type of a field in a few words; the name of another schema is a link."""
    if "$ref" in schema:
        name = escape(_name(schema))
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        inner = _type(schema["items"])
        return "files" if inner == "file" else f"list of {inner}"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "contentMediaType" in schema or schema.get("format") == "binary":
        return "file"
    return escape(str(schema.get("type", schema.get("const", ""))))


def _command(method: str, path: str, kind: str, body: Json) -> str:
    """Return the curl command that makes the request."""
    parts = ["curl"] if method == "get" else [f"curl -X {method.upper()}"]
    parts.append('-H "Authorization: Bearer $PRIMAVISTA_TOKEN"')
    required = list(body.get("required", ()))
    if kind == MULTIPART:
        files = [name for name in body.get("properties", {}) if name in EXAMPLES]
        names = required if set(required) & set(files) else [*required, *files[:1]]
        parts += [f"-F {name}={EXAMPLES.get(name, 'mug')}" for name in names]
    elif kind == JSON_BODY:
        values = ", ".join(f'"{name}": {_example(body, name)}' for name in required)
        parts += ["-H 'Content-Type: application/json'", f"-d '{{{values}}}'"]
    return " ".join([*parts, ADDRESS + path.replace("{id}", "ID")])


def _example(body: Json, name: str) -> str:
    kind = body["properties"][name].get("type")
    return {"number": "0.5", "integer": "1", "boolean": "true"}.get(str(kind), '"mug"')


def _prose(text: str) -> str:
    """Return a text as HTML, with `...` as code; everything is escaped."""
    parts = escape(" ".join(text.split())).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _name(schema: Json) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _anchor(method: str, path: str) -> str:
    letters = "".join(letter if letter.isalnum() else "-" for letter in path.strip("/"))
    return f"{method}-{letters}"

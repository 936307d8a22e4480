"""The bills of materials, made from the packages that are installed here."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

pytest.importorskip("cyclonedx")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import sbom  # noqa: E402
from cyclonedx.output.json import JsonV1Dot6  # noqa: E402
from cyclonedx.schema import SchemaVersion  # noqa: E402
from cyclonedx.validation.json import JsonStrictValidator  # noqa: E402


def written(without: set[str]) -> dict:
    """The bill as it is written, after a check against the published schema."""
    text = JsonV1Dot6(sbom.bill_of_materials(without)).output_as_string()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return json.loads(text)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


def test_the_floor_needs_no_torch():
    found = written(EXTRAS)
    ours = found["metadata"]["component"]
    assert (ours["name"], ours["licenses"]) == (
        "primavista",
        [{"license": {"id": "Apache-2.0"}}],
    )
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    direct = [ref.partition("@")[0].rpartition("/")[2] for ref in needs[ours["bom-ref"]]]
    assert direct == [
        *("array-api-compat", "numpy", "onnxruntime", "pillow"),
        *("pydantic", "rich", "safetensors", "typer"),
    ]
    packages = {component["name"]: component for component in found["components"]}
    assert "flatbuffers" in packages  # needed by onnxruntime
    assert "torch" not in packages
    assert packages["numpy"]["version"] == distribution("numpy").version
    assert all(component["scope"] == "required" for component in packages.values())


def test_what_npm_puts_into_the_wheel_is_a_part_of_it():
    ours = written(EXTRAS)["metadata"]["component"]
    parts = {part["name"]: part for part in ours["components"]}
    assert parts.keys() == {"onnxruntime-web", "onnxruntime-common"}
    wasm = parts["onnxruntime-web"]
    assert wasm["purl"] == f"pkg:npm/onnxruntime-web@{wasm['version']}"
    assert wasm["licenses"] == [{"license": {"id": "MIT"}}]
    (file,) = wasm["externalReferences"]
    (digest,) = file["hashes"]
    assert (digest["alg"], len(digest["content"])) == ("SHA-512", 128)


def test_a_bill_has_licences_hashes_scopes_and_what_wheels_bundle():
    found = written(EXTRAS - {"video"})
    packages = {component["name"]: component for component in found["components"]}
    assert packages["numpy"]["scope"] == "required"
    assert packages["av"]["scope"] == "optional"
    assert "pytest" not in packages
    for name, component in packages.items():
        assert component["licenses"], name
        files = component["externalReferences"]
        assert all(len(file["hashes"][0]["content"]) == 64 for file in files), name
    if sys.platform == "linux":
        bundled = {library["name"]: library for library in packages["av"]["components"]}
        assert bundled["libx264"]["licenses"] == [{"license": {"id": "GPL-2.0-or-later"}}]
        assert len(bundled["libx264"]["hashes"][0]["content"]) == 64


def test_a_library_that_notice_does_not_name_is_an_error():
    if not any("av.libs" in str(file) for file in distribution("av").files or []):
        pytest.skip("this wheel of PyAV bundles no libraries in av.libs")
    with pytest.raises(SystemExit, match="not in the table of NOTICE"):
        sbom.package("av", {"av": ["a" * 64]}, {})


def test_a_package_that_is_not_installed_or_not_locked_is_an_error():
    with pytest.raises(PackageNotFoundError):
        distribution("no-such-package")
    with pytest.raises(SystemExit, match="is not installed"):
        sbom.package("no-such-package", {}, {})
    with pytest.raises(SystemExit, match="no hash in locks"):
        sbom.package("numpy", {}, {})


def test_every_library_of_the_installed_wheels_is_in_notice():
    """All packages that users may install; those that are not installed here are passed over."""
    licences = sbom.bundled_licences((ROOT / "NOTICE").read_text(encoding="utf-8"))
    assert licences["libx265"] == "GPL-2.0-or-later"
    seen = 0
    for name in ("av", "numpy", "pillow", "pillow-heif", "scipy", "scikit-learn", "onnxruntime"):
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        seen += len(list(sbom.libraries(installed, name, licences)))
    assert seen > 0 or sys.platform != "linux"


def table() -> dict[str, str]:
    return sbom.bundled_licences((ROOT / "NOTICE").read_text(encoding="utf-8"))


def bundled_in(package: str) -> set[str]:
    """The names of the libraries in the `.libs` folder of an installed wheel."""
    names = set()
    for file in distribution(package).files or []:
        found = sbom.LIBRARY.match(file.name)
        if found and file.parent.name == f"{package}.libs":
            names.add(found[1])
    if not names:
        pytest.skip(f"this wheel of {package} bundles no libraries")
    return names


def section(package: str) -> set[str]:
    """The names of the libraries that NOTICE lists under the folder of a package."""
    text = (ROOT / "NOTICE").read_text(encoding="utf-8")
    after = re.split(rf"^{package}\.libs.*:\n", text, flags=re.M)[1]
    return set(sbom.bundled_licences(after.partition("\n\n")[0]))


def test_notice_lists_no_library_that_the_wheels_no_longer_bundle():
    of_video = section("av")
    assert of_video == bundled_in("av")
    of_pictures = section("pillow")
    assert of_pictures <= bundled_in("pillow") <= of_pictures | of_video
    assert bundled_in("numpy") <= section("numpy")


def test_notice_says_what_pillow_heif_says_of_its_libraries():
    assert section("pillow_heif") | {"libx265"} == bundled_in("pillow_heif")
    installed = distribution("pillow-heif")
    stated = next(f for f in installed.files or [] if f.name == "LICENSES_bundled.txt").read_text()
    for name, family in {"libheif": "LGPL", "libde265": "LGPL", "x265": "GPL"}.items():
        said = re.search(rf"^Name: {name}\nLicense: {family}v(\d)$", stated, re.M)
        ours = table()[name if name.startswith("lib") else f"lib{name}"]
        assert said is not None
        assert ours == f"{family}-{said[1]}.0-or-later"


def test_notice_says_what_ffmpeg_says_of_itself():
    """Its licence, and how it was configured: without --enable-gpl, and yet with x264 and x265."""
    av = pytest.importorskip("av")
    bundled_in("av")
    for name, facts in av._core.library_meta.items():
        assert facts["license"] == "LGPL version 3 or later"
        assert table()[name] == "LGPL-3.0-or-later"
        options = facts["configuration"].split()
        assert "--enable-gpl" not in options
        assert {"--enable-version3", "--enable-libx264", "--enable-libx265"} <= set(options)
    assert "--enable-version3 and without --enable-gpl" in (ROOT / "NOTICE").read_text()


def test_notice_says_what_numpy_says_of_its_libraries():
    names = bundled_in("numpy")
    installed = distribution("numpy")
    stated = next(f for f in installed.files or [] if f.match("*.dist-info/licenses/LICENSE.txt"))
    found: dict[str, list[str]] = {}
    pattern = r"^Files: numpy\.libs/(\w+)\*\.so\n(?:.*\n)*?License: (.*)$"
    for prefix, licence in re.findall(pattern, stated.read_text(), re.M):
        for name in names:
            if name.startswith(prefix):
                found.setdefault(name, []).append(licence)
    assert {name: " AND ".join(licences) for name, licences in found.items()} == {
        name: table()[name] for name in names
    }


PILLOW_SAYS_LESS = {"libfreetype", "libharfbuzz", "libjpeg"}  # NOTICE has the library's own words


def test_notice_says_what_pillow_says_of_its_libraries():
    names = bundled_in("pillow")
    files = [f for f in distribution("pillow").files or [] if f.match("sboms/pillow-*.cdx.json")]
    if not files:
        pytest.skip("this wheel of Pillow has no bill of materials")
    libraries = {"little cms 2": "liblcms2", "openjpeg": "libopenjp2"}
    compared = set()
    for component in json.loads(files[0].read_text())["components"]:
        title = component["name"].lower().partition(" / ")[0]
        name = libraries.get(title, f"lib{title.removeprefix('lib')}")
        if name in names:
            stated = " AND ".join(one["license"]["id"] for one in component["licenses"])
            said = table()[name]
            assert said == stated or (name in PILLOW_SAYS_LESS and said.startswith(stated)), name
            compared.add(name)
    assert {"libtiff", "libwebp", "libxcb", "liblcms2", "libopenjp2", "libavif"} <= compared


def test_the_files_that_notice_refers_to_are_in_the_wheels():
    text = (ROOT / "NOTICE").read_text(encoding="utf-8")
    rows = re.findall(r"^  (\w+) +(\w+(?:-\*\.dist-info)?/[\w./]+)", text, re.M)
    assert len(rows) == 10
    for name, path in rows:
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        pattern = path.replace("*", r"[^/]+").replace(".", r"\.")
        files = [str(file) for file in installed.files or []]
        assert any(re.match(pattern, file) for file in files), path

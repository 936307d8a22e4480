"""The bills of materials, made from the packages that are installed here."""

from __future__ import annotations

import json
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


def written(name: str, without: set[str]) -> dict:
    """The bill as it is written, after a check against the published schema."""
    text = JsonV1Dot6(sbom.bill_of(name, without)).output_as_string()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return json.loads(text)


def test_the_edge_needs_three_packages_and_what_they_need():
    found = written("primavista-edge", set())
    ours = found["metadata"]["component"]
    assert (ours["name"], ours["licenses"]) == (
        "primavista-edge",
        [{"license": {"id": "Apache-2.0"}}],
    )
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    direct = [ref.partition("@")[0] for ref in needs[ours["bom-ref"]]]
    assert direct == ["pkg:pypi/array-api-compat", "pkg:pypi/numpy", "pkg:pypi/onnxruntime"]
    packages = {component["name"]: component for component in found["components"]}
    assert "flatbuffers" in packages  # needed by onnxruntime
    assert "torch" not in packages
    assert packages["numpy"]["version"] == distribution("numpy").version
    assert all(component["scope"] == "required" for component in packages.values())


def test_a_bill_has_licences_hashes_scopes_and_what_wheels_bundle():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = written("primavista", set(project["optional-dependencies"]) - {"video"})
    packages = {component["name"]: component for component in found["components"]}
    assert packages["torch"]["scope"] == "required"
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
    for name in ("av", "numpy", "pillow", "scipy", "scikit-learn", "pandas", "onnxruntime"):
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        seen += len(list(sbom.libraries(installed, name, licences)))
    assert seen > 0 or sys.platform != "linux"

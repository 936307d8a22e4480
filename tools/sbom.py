"""Write the components of the distribution as a CycloneDX bill of materials.

    python tools/sbom.py [--out dist]    # primavista.cdx.json

The bill lists the dependencies that users install, direct and indirect, with the versions of
locks/, the hashes of all their files, their licences and the dependencies between them.
Dependencies of an extra are optional. The shared libraries that a wheel bundles are components of
its package; their licences are those of the table in NOTICE. Packages that only development needs
are left out.

Run it in the environment that `make` installs: licences are read from the installed packages.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata as metadata
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parent))

from lock import normal, parse

ROOT = Path(__file__).resolve().parents[1]
NOT_FOR_USERS = {"dev", "docs", "avalanche"}  # Avalanche is not in the environment of `make`
LIBRARY = re.compile(r"(lib[A-Za-z0-9_+-]+?)(-[0-9a-f]{8})*\.(?:so|dylib)")
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass
class Bill:
    """The components while they are collected."""

    hashes: dict[str, list[str]]
    licences: dict[str, str]
    components: dict[str, Component] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)
    seen: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def add(self, requirement: Requirement, scope: ComponentScope) -> str:
        """Add a package and its dependencies if they are missing; return its normal name."""
        name = normal(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in self.seen:
            return name
        self.seen.add(key)
        if name not in self.components:
            self.components[name] = package(name, self.hashes, self.licences)
            self.components[name].scope = scope
            self.needs[name] = set()
        for line in metadata.requires(name) or []:
            found = Requirement(line)
            if applies(found, requirement.extras):
                self.needs[name].add(self.add(found, scope))
        return name


def applies(requirement: Requirement, extras: set[str]) -> bool:
    """Return True if a requirement holds in this environment, with the requested extras."""
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in [*extras, ""])


def locked_hashes(root: Path) -> dict[str, list[str]]:
    """Return the SHA-256 hashes of all files of each locked package."""
    hashes: dict[str, list[str]] = {}
    for path in sorted((root / "locks").glob("*.txt")):
        for entry, lines in parse(path.read_text(encoding="utf-8")).items():
            found = re.findall(r"sha256:([0-9a-f]{64})", lines)
            hashes.setdefault(normal(entry.partition("==")[0]), []).extend(found)
    return hashes


def bundled_licences(notice: str) -> dict[str, str]:
    """Read the table of libraries in NOTICE: two columns separated by two blanks or more."""
    return dict(re.findall(r"^  (lib[\w+-]+) {2,}(\S.*)$", notice, re.M))


def package(name: str, hashes: dict[str, list[str]], licences: dict[str, str]) -> Component:
    """Describe an installed package: its licence, its libraries and the hashes of its files."""
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise SystemExit(f"{name} is not installed: run `make sbom`, which installs it") from None
    if not hashes.get(name):
        raise SystemExit(f"{name} has no hash in locks/: run `make lock`")
    version = installed.version.partition("+")[0]
    url = PackageURL("pypi", None, name, version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        licenses=[LicenseFactory().make_from_string(licence(installed))],
        external_references=[file_reference(name, version, value) for value in hashes[name]],
        components=list(libraries(installed, str(url), licences)),
    )


def file_reference(name: str, version: str, value: str) -> ExternalReference:
    """Describe one file of a release by its hash; a release has one file per platform."""
    url = PackageURL("pypi", None, name, version, {"checksum": f"sha256:{value}"})
    return ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(url)),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=value)],
    )


def licence(installed: metadata.Distribution) -> str:
    """Return the licence that a package states: an expression, a short text or its classifiers."""
    facts = installed.metadata
    short = (facts.get("License") or "").strip()
    stated = [line.rpartition(" :: ")[2] for line in facts.get_all("Classifier") or []]
    classified = sorted({CLASSIFIERS[name] for name in stated if name in CLASSIFIERS})
    if facts.get("License-Expression"):
        return str(facts["License-Expression"])
    if classified:
        return " OR ".join(classified)
    if short not in ("", "UNKNOWN") and "\n" not in short:
        return short
    return "BSD License" if "BSD License" in stated else "NOASSERTION"


def libraries(
    installed: metadata.Distribution, parent: str, licences: dict[str, str]
) -> Iterator[Component]:
    """Return the third-party shared libraries that a wheel bundles in its `.libs` folder."""
    for file in installed.files or []:
        found = LIBRARY.match(file.name)
        if not found or not file.parent.name.endswith((".libs", ".dylibs")):
            continue
        name = found[1]
        if name not in licences:
            raise SystemExit(f"{file} is bundled and not in the table of NOTICE: add its licence")
        digest = hashlib.sha256(Path(str(file.locate())).read_bytes()).hexdigest()
        yield Component(
            name=name,
            type=ComponentType.LIBRARY,
            bom_ref=f"{parent}#{file.name}",
            licenses=[LicenseFactory().make_from_string(licences[name])],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )


def inside() -> Iterator[Component]:
    """Return the npm packages whose code `make web` puts into the wheel."""
    locked = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))
    for name in ("onnxruntime-common", "onnxruntime-web"):
        facts = locked["packages"][f"node_modules/{name}"]
        url = PackageURL("npm", None, name, facts["version"])
        digest = base64.b64decode(facts["integrity"].removeprefix("sha512-")).hex()
        hashes = [HashType(alg=HashAlgorithm.SHA_512, content=digest)]
        kind = ExternalReferenceType.DISTRIBUTION
        yield Component(
            name=name,
            version=facts["version"],
            type=ComponentType.LIBRARY,
            bom_ref=str(url),
            purl=url,
            licenses=[LicenseFactory().make_from_string(facts["license"])],
            external_references=[ExternalReference(type=kind, url=XsUri(str(url)), hashes=hashes)],
        )


def own_version() -> str:
    """Return the version of primavista, which its package keeps."""
    text = (ROOT / "src/primavista/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"', text, re.M)
    assert found is not None
    return found[1]


def bill_of_materials(without: set[str] = NOT_FOR_USERS) -> Bom:
    """Return the bill; required dependencies are added before those of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    bill = Bill(locked_hashes(ROOT), bundled_licences(notice))
    direct = {
        bill.add(Requirement(line), ComponentScope.REQUIRED) for line in project["dependencies"]
    }
    for extra, lines in project["optional-dependencies"].items():
        if extra not in without:
            direct |= {bill.add(Requirement(line), ComponentScope.OPTIONAL) for line in lines}
    version = own_version()
    url = PackageURL("pypi", None, project["name"], version)
    ours = Component(
        name=project["name"],
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        licenses=[LicenseFactory().make_from_string(project["license"])],
        components=list(inside()),
    )
    bom = Bom(components=bill.components.values())
    bom.metadata.component = ours
    bom.register_dependency(ours, [bill.components[child] for child in direct])
    for parent, children in bill.needs.items():
        bom.register_dependency(
            bill.components[parent], [bill.components[child] for child in children]
        )
    return bom


def main() -> None:
    """Write the bill."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    bom = bill_of_materials()
    path = given.out / "primavista.cdx.json"
    path.write_text(JsonV1Dot6(bom).output_as_string(indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {len(bom.components)} packages")


if __name__ == "__main__":
    main()

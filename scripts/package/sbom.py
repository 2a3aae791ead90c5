"""The bill of materials of a release, as CycloneDX 1.6, and the licences that its objects carry along.

    sbom.py PACKAGE --cargo FOLDER --lock Cargo.lock --rustc VERSION [--wheels SITE_PACKAGES] --epoch SECONDS

PACKAGE is the unpacked package: its objects and networks are hashed. FOLDER holds what cargo says for the target: metadata.json, and PACKAGE.tree
for each package that an object is built from, the crates linked into it. Writes PACKAGE/sbom.cdx.json and PACKAGE/THIRD_PARTY_LICENSES.txt; the same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

# Which package of the workspace an object is built from, and the wheels whose libraries lie beside it.
OBJECTS = {"libtriton_spleenseg.so": "triton-spleenseg", "libtriton_pytorch.so": "torchscript_backend"}
WHEELS = ("torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti")
LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*")


@dataclass(frozen=True)
class Crates:
    """What cargo says of the workspace: its packages, on what each depends, and which of them are linked into which object."""

    packages: dict[str, dict]
    dependencies: dict[str, list[str]]
    trees: dict[str, list[str]]
    checksums: dict[tuple[str, str], str]

    @classmethod
    def read(cls, folder: Path, lock: dict) -> Crates:
        """`cargo metadata` knows the features of the whole workspace together, `cargo tree` those of one package's build."""
        metadata = json.loads((folder / "metadata.json").read_text())
        packages = {package["id"]: package for package in metadata["packages"]}
        ids = {(package["name"], package["version"]): key for key, package in packages.items()}
        trees = {}
        for tree in folder.glob("*.tree"):
            lines = [line.split() for line in tree.read_text().splitlines() if line]
            trees[tree.stem] = list(dict.fromkeys(ids[words[0], words[1].removeprefix("v")] for words in lines))
        return cls(
            packages,
            {node["id"]: [dependency["pkg"] for dependency in node["deps"]] for node in metadata["resolve"]["nodes"]},
            trees,
            {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p},
        )

    def product(self) -> dict:
        return self.packages[self.trees["triton-spleenseg"][0]]

    def component(self, key: str) -> Component:
        package = self.packages[key]
        name, version = package["name"], package["version"]
        checksum = self.checksums.get((name, version))
        repository = package.get("repository")
        return Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"cargo:{name}@{version}",
            purl=PackageURL("cargo", None, name, version) if package["source"] else None,
            licenses=[LicenseExpression(package["license"].replace("/", " OR "))] if package["license"] else [],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
            external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(repository))] if repository else [],
        )


def hashed(path: Path) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256(path.read_bytes()).hexdigest())]


def file_component(package: Path, path: Path, version: str, kind: ComponentType) -> Component:
    name = str(path.relative_to(package))
    return Component(name=name, version=version, type=kind, bom_ref=f"file:{name}", hashes=hashed(path))


def wheels(site_packages: Path) -> Iterator[tuple[str, str, list[Path]]]:
    """Name, version and licence files of the wheels that libtorch comes in."""
    found = {d.metadata["Name"]: d for d in distributions(path=[str(site_packages)])}
    for name in WHEELS:
        distribution = found[name]
        files = [Path(distribution.locate_file(file)) for file in distribution.files or [] if file.parent.name.endswith(".dist-info") or "licenses" in file.parts]
        yield name, distribution.version, sorted(f for f in files if any(f.match(pattern) for pattern in LICENCE_FILES))


def licence_text(title: str, files: list[Path]) -> str:
    texts = [f"--- {file.name}\n{file.read_text(encoding='utf-8', errors='replace').strip()}\n" for file in files]
    return f"{'=' * 100}\n{title}\n\n{chr(10).join(texts)}\n"


def write(package: Path, crates: Crates, rustc: str, site_packages: Path | None, epoch: int) -> None:
    product = crates.product()
    version = product["version"]
    root = Component(
        name="triton-spleenseg",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="package",
        licenses=[LicenseExpression(product["license"])],
    )
    objects = sorted(package.glob("backends/*/libtriton_*.so"))
    networks = sorted(package.glob("models/*/*/model.pt"))
    # A number of its own for each package, and the same one whenever it is made again.
    contents = b"".join(sha256(path.read_bytes()).digest() for path in (package / "BUILD", *objects, *networks))
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, contents.hex()))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    std = Component(name="rust-std", version=rustc, type=ComponentType.LIBRARY, bom_ref="rust-std", licenses=[LicenseExpression("MIT OR Apache-2.0")])
    bom.components.add(std)
    licences: dict[str, str] = {}
    parts = []

    for path in objects:
        component = file_component(package, path, version, ComponentType.LIBRARY)
        parts.append(component)
        keys = crates.trees[OBJECTS[path.name]]
        known = {key: crates.component(key) for key in keys}
        bom.components.update([component, *known.values()])
        bom.register_dependency(component, [known[keys[0]], std])
        for key, made in known.items():
            bom.register_dependency(made, [known[child] for child in crates.dependencies[key] if child in known])
            if crates.packages[key]["source"]:
                folder = Path(crates.packages[key]["manifest_path"]).parent
                files = sorted({file for pattern in LICENCE_FILES for file in folder.glob(pattern) if file.is_file()})
                licences[f"{made.name} {made.version} ({crates.packages[key]['license']})"] = licence_text(f"{made.name} {made.version}", files)
    if site_packages:
        for name, wheel_version, files in wheels(site_packages):
            made = Component(
                name=name, version=wheel_version, type=ComponentType.LIBRARY, bom_ref=f"pypi:{name}@{wheel_version}", purl=PackageURL("pypi", None, name, wheel_version)
            )
            bom.components.add(made)
            parts.append(made)
            licences[name] = licence_text(f"{name} {wheel_version}", files)
    for path in networks:
        component = file_component(package, path, version, ComponentType.MACHINE_LEARNING_MODEL)
        bom.components.add(component)
        parts.append(component)
    bom.register_dependency(root, parts)

    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"error: the bill of materials does not fit the schema of CycloneDX 1.6: {error}")
    (package / "sbom.cdx.json").write_text(text + "\n")
    (package / "THIRD_PARTY_LICENSES.txt").write_text("".join(licences[key] for key in sorted(licences)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--cargo", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--rustc", required=True)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    given = parser.parse_args()
    crates = Crates.read(given.cargo, tomllib.loads(given.lock.read_text()))
    write(given.package, crates, given.rustc, given.wheels, given.epoch)


if __name__ == "__main__":
    main()

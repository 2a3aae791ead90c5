"""The archive: complete, covered by checksums, the same each time, and with a bill of materials that is true."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import BUILD_S, ROOT, environment_folder, script
from test_docs import dead_links

pytestmark = pytest.mark.timeout(BUILD_S + 60)

SCHEMA = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(f"{error}" if error else 0)
"""


def hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def sbom(package) -> dict:
    return json.loads((package.folder / "sbom.cdx.json").read_text())


def test_has_what_a_machine_without_a_network_needs(package):
    for name in (
        "install.sh",
        "LICENSE",
        "SECURITY.md",
        "docs/README.md",
        "docs/configuration.md",
        "deploy/Dockerfile",
        "backends/spleenseg/libtriton_spleenseg.so",
        "models/segmentation_3d/1/model.pt",
    ):
        assert (package.folder / name).is_file(), name
    assert (package.folder / "models/spleen_seg/1").is_dir()
    assert not (package.folder / "backends/pytorch").exists(), "NVIDIA's Triton has its own"
    assert os.access(package.folder / "install.sh", os.X_OK)
    for model in ("spleen_seg", "spleen_seg_native", "segmentation_3d"):
        shipped = (ROOT / "models" / model / "config.pbtxt").read_bytes()
        assert (package.folder / "models" / model / "config.pbtxt").read_bytes() == shipped


def test_its_pages_link_only_what_it_has(package):
    pages = [*package.folder.rglob("*.md")]
    assert {page.name: dead_links(page) for page in pages if dead_links(page)} == {}
    # The text stays, and so do all other links and the code.
    security, readme = ((package.folder / name).read_text() for name in ("SECURITY.md", "README.md"))
    assert "(SAFETY.md)" in security and "[docs/sizing.md](docs/sizing.md)" in security
    assert "begin with examples/clients." in readme
    assert re.findall(r"^```.*?^```", readme, re.MULTILINE | re.DOTALL) == re.findall(
        r"^```.*?^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )


def test_every_file_has_its_checksum(package):
    listed = dict(reversed(line.split("  ", 1)) for line in (package.folder / "SHA256SUMS").read_text().splitlines())
    files = {str(p.relative_to(package.folder)): p for p in package.folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS"}
    assert listed == {name: hash_of(path) for name, path in files.items()}
    beside = package.archive.with_name(f"{package.archive.name}.sha256").read_text().split()
    assert beside == [hash_of(package.archive), package.archive.name]


def test_says_what_it_is(package):
    build = dict(line.split(": ", 1) for line in (package.folder / "BUILD").read_text().splitlines())
    assert build["version"] == tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert build["version"] in package.archive.name
    assert re.fullmatch(r"[0-9a-f]{40}( with changes)?|unknown", build["commit"])
    assert tuple(map(int, build["glibc"].split("."))) <= (2, 31)


def test_is_the_same_bytes_again(package, tmp_path):
    again = Path(script("package.sh", "--out", str(tmp_path)))
    assert hash_of(again) == hash_of(package.archive)


def test_names_no_path_of_the_machine_that_made_it(package):
    for path in package.folder.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert str(ROOT).encode() not in text and f"{Path.home()}/".encode() not in text, path


def test_packs_an_own_network(tmp_path):
    network = tmp_path / "own.pt"
    network.write_bytes(b"any bytes: the script only copies them")
    archive = Path(script("package.sh", "--out", str(tmp_path / "out"), "--model", str(network)))
    folder = archive.parent / archive.name.removesuffix(".tar.gz")
    assert (folder / "models/segmentation_3d/1/model.pt").read_bytes() == network.read_bytes()


def test_the_bill_fits_its_schema(package):
    python = environment_folder("release") / "bin" / "python"
    done = subprocess.run(
        [python, "-c", SCHEMA, package.folder / "sbom.cdx.json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_bill_names_every_crate_that_is_linked(package, sbom):
    """Compared with what the compiler made for the object, crate by crate."""
    shell = """
        for part in common environments build release; do source "scripts/lib/$part.sh"; done
        build_release_object --message-format=json 2>&1
    """
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"reason":"compiler-artifact"')]
    # What runs while compiling, build scripts and macros and theirs, is made for the host, in another folder.
    made = [m["package_id"] for m in messages if any("/x86_64-unknown-linux-gnu/dist/" in name for name in m["filenames"])]
    linked = {tuple(key.partition("#")[2].split("@")) for key in made if key.startswith("registry+")}
    assert {(c["name"], c["version"]) for c in sbom["components"] if "purl" in c} == linked and len(linked) > 5
    own = {c["name"] for c in sbom["components"] if c["bom-ref"].startswith("cargo:") and "purl" not in c}
    assert {"triton-spleenseg", "triton_backend_api"} <= own
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    for component in sbom["components"]:
        if "purl" in component:
            assert component["purl"] == f"pkg:cargo/{component['name']}@{component['version']}"
            assert [h["content"] for h in component["hashes"]] == [checksums[component["name"], component["version"]]]
            assert component["licenses"]


def test_the_bill_has_the_hash_of_every_object_and_network(package, sbom):
    hashes = {c["name"]: c["hashes"][0]["content"] for c in sbom["components"] if c["bom-ref"].startswith("file:")}
    files = [*package.folder.glob("backends/*/*.so"), *package.folder.glob("models/*/*/model.pt")]
    assert hashes == {str(f.relative_to(package.folder)): hash_of(f) for f in files} and len(files) == 2
    # Everything is reached from the package itself.
    edges = {d["ref"]: d.get("dependsOn", []) for d in sbom["dependencies"]}
    reached = [sbom["metadata"]["component"]["bom-ref"]]
    for ref in reached:
        reached.extend(r for r in edges[ref] if r not in reached)
    assert set(reached) == {c["bom-ref"] for c in sbom["components"]} | {"package"}


def test_the_licence_of_every_crate_goes_with_it(package, sbom):
    text = (package.folder / "THIRD_PARTY_LICENSES.txt").read_text()
    for component in sbom["components"]:
        if "purl" in component:
            _, found, rest = text.partition(f"\n{component['name']} {component['version']}\n")
            assert found and "---" in rest[:60], component["name"]

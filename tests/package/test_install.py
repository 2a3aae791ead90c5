"""install.sh on a small package: what it writes, keeps, refuses and takes away again."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import ROOT

INSTALL = ROOT / "scripts" / "package" / "install.sh"
OBJECT = "backends/spleenseg/libtriton_spleenseg.so"
CONFIG = "models/spleen_seg/config.pbtxt"
NETWORK = "models/segmentation_3d/1/model.pt"


class Small:
    """A package with a few bytes in each file."""

    def __init__(self, folder: Path, version: str = "1.0.0", glibc: str = "2.31", **files: str):
        self.folder = folder
        contents = {
            OBJECT: f"object {version}",
            CONFIG: "a configuration",
            "models/segmentation_3d/config.pbtxt": "another one",
            NETWORK: "weights",
            "BUILD": f"version: {version}\nglibc: {glibc}\n",
        }
        for name, text in (contents | files).items():
            self.write(name, text)
        (folder / "models/spleen_seg/1").mkdir()
        shutil.copy(INSTALL, folder)
        self.sign()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def sign(self) -> None:
        files = sorted(p for p in self.folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
        lines = [f"{sha256(p.read_bytes()).hexdigest()}  {p.relative_to(self.folder)}\n" for p in files]
        (self.folder / "SHA256SUMS").write_text("".join(lines))

    def run(self, *arguments: str | Path, rc: int = 0) -> str:
        command = [str(self.folder / "install.sh"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == rc, done.stdout + done.stderr
        if rc:
            assert done.stderr.splitlines()[-1].startswith("error: "), done.stderr
        return done.stdout if rc == 0 else done.stderr


@pytest.fixture
def small(tmp_path) -> Small:
    return Small(tmp_path / "package")


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "an installation"


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file() and p.name != ".triton-spleenseg"}


def test_everything_lands_where_triton_looks(small, target):
    said = small.run(target)
    assert tree(target) == {name: (small.folder / name).read_text() for name in (OBJECT, CONFIG, NETWORK, "models/segmentation_3d/config.pbtxt")}
    assert (target / "models/spleen_seg/1").is_dir(), "a model without files needs its version's folder"
    assert f"--backend-directory={target}/backends --model-repository={target}/models" in said
    assert said.count("installed ") >= 4
    for path in target.rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, f"{path} cannot be read by the server's user"


def test_a_second_run_changes_nothing_and_says_so(small, target):
    small.run(target)
    before = {p: p.stat().st_mtime_ns for p in target.rglob("*") if p.is_file() and p.name != ".triton-spleenseg"}
    said = small.run(target)
    assert "unchanged" in said and "replaced" not in said and "\ninstalled" not in said
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_another_repository(small, target, tmp_path):
    small.run(target, "--repository", tmp_path / "repository")
    assert (tmp_path / "repository/spleen_seg/config.pbtxt").is_file() and not (target / "models").exists()
    small.run("--uninstall", target)
    assert tree(tmp_path / "repository") == {} and tree(target) == {}


def test_a_newer_release_replaces_the_old_one_and_keeps_what_was_changed(small, target, tmp_path):
    small.run(target)
    (target / CONFIG).write_text("changed by the hospital")
    newer = Small(tmp_path / "newer", "2.0.0", **{CONFIG: "a newer configuration", NETWORK: "better weights"})
    said = newer.run(target)
    assert (target / OBJECT).read_text() == "object 2.0.0"
    assert (target / NETWORK).read_text() == "better weights"
    assert (target / CONFIG).read_text() == "changed by the hospital"
    assert f"kept       {target / CONFIG}" in said and str(newer.folder / CONFIG) in said
    # And once more: that file is still not taken for one of ours.
    newer.run(target)
    assert (target / CONFIG).read_text() == "changed by the hospital"


def test_models_that_were_there_before_are_kept(small, target):
    (target / CONFIG).parent.mkdir(parents=True)
    (target / CONFIG).write_text("from before")
    assert "kept" in small.run(target)
    assert (target / CONFIG).read_text() == "from before"
    small.run("--uninstall", target)
    assert tree(target) == {CONFIG: "from before"}


def test_what_a_newer_release_no_longer_has_goes(target, tmp_path):
    old = Small(tmp_path / "old", **{"models/segmentation_3d/configs/gpu.pbtxt": "gpu"})
    old.run(target)
    said = Small(tmp_path / "newer", "2.0.0").run(target)
    assert f"removed    {target}/models/segmentation_3d/configs/gpu.pbtxt" in said
    assert not (target / "models/segmentation_3d/configs").exists()


def test_uninstalling_takes_away_what_was_installed_and_nothing_else(small, target):
    (target / "backends/python").mkdir(parents=True)
    (target / "backends/python/libtriton_python.so").write_text("the server's own")
    small.run(target)
    (target / NETWORK).write_text("trained here")
    said = small.run("--uninstall", target)
    assert tree(target) == {"backends/python/libtriton_python.so": "the server's own", NETWORK: "trained here"}
    assert "kept" in said and not (target / "backends/spleenseg").exists() and not (target / "models/spleen_seg").exists()
    assert "nothing of triton-spleenseg is installed" in small.run("--uninstall", target, rc=1)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: p.write(OBJECT, "one byte other"), OBJECT),
        (lambda p: (p.folder / NETWORK).unlink(), NETWORK),
        (lambda p: p.write("backends/other/libtriton_other.so", "smuggled in"), "backends/other/libtriton_other.so is not listed"),
        (lambda p: (p.folder / "SHA256SUMS").unlink(), "SHA256SUMS is missing"),
    ],
    ids=["changed", "missing", "added", "no checksums"],
)
def test_a_damaged_package_installs_nothing(small, target, damage, words):
    damage(small)
    assert words in small.run(target, rc=1)
    assert not target.exists()


def test_an_older_glibc_is_refused(tmp_path, target):
    assert "the package needs 9.99 or newer" in Small(tmp_path / "package", glibc="9.99").run(target, rc=1)
    assert not target.exists()


def test_a_pytorch_backend_of_the_server_is_not_replaced(tmp_path, target):
    package = Small(tmp_path / "package", **{"backends/pytorch/libtriton_pytorch.so": "ours"})
    theirs = target / "backends/pytorch/libtriton_pytorch.so"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("NVIDIA's")
    assert "has a PyTorch backend of its own" in package.run(target, rc=1)
    assert tree(target) == {"backends/pytorch/libtriton_pytorch.so": "NVIDIA's"}
    theirs.unlink()
    package.run(target)
    package.run(target)
    assert theirs.read_text() == "ours"


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written(small, tmp_path):
    tmp_path.joinpath("locked").mkdir(mode=0o555)
    assert "cannot write to" in small.run(tmp_path / "locked/triton", rc=1)


def test_a_file_in_the_place_of_the_folder(small, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write to" in small.run(tmp_path / "file/triton", rc=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "usage: install.sh DIR"), (("a", "b"), "'b' is a second"), (("--fast", "a"), "unknown option '--fast'"), (("a", "--repository"), "needs a folder")],
)
def test_wrong_arguments(small, arguments, words):
    assert words in small.run(*arguments, rc=1)


def test_needs_no_more_than_it_says(small, target, tmp_path):
    """bash, coreutils, awk, and find and grep, which every image with a shell has. No Python, no network tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in "bash sha256sum cut awk grep find sort head getconf uname mkdir dirname cp chmod mv rm rmdir sed cat env".split():
        (tools / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        [str(small.folder / "install.sh"), str(target)], env={"PATH": str(tools)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (target / OBJECT).is_file()

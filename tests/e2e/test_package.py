"""From the archive to an answer: installed where no network can be reached, served by stock Triton, taken away again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
from models import ROOT
from triton import Triton, setting

pytestmark = pytest.mark.timeout(1500)


def without_network() -> list[str]:
    """A command in front of which nothing reaches a network: a namespace of its own, where this system allows one."""
    for command in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


def run(*command: str | Path) -> str:
    # No variable of this session reaches install.sh: not the cache, not a proxy.
    done = subprocess.run([str(part) for part in command], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    command = [str(ROOT / "scripts" / "package.sh"), "--out", str(folder / "made")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    archive = Path(done.stdout.strip())
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_installed_without_a_network_and_served(package, tmp_path, shipped):
    """The answer is that of the everyday build, which the other tests compare with MONAI."""
    target = tmp_path / "triton"
    said = run(*without_network(), package / "install.sh", target)
    assert f"--model-repository={target}/models" in said
    # As in NVIDIA's image, the PyTorch backend is the server's own.
    (target / "backends" / "pytorch").symlink_to((Path(setting("SPLEENSEG_BACKENDS")) / "pytorch").resolve())
    assert "unchanged" in run(*without_network(), package / "install.sh", target)

    volume = reference.blobs((80, 72, 64), seed=30)[None]
    with Triton(target / "models", target / "backends", tmp_path / "log") as server:
        assert server.http().is_model_ready("spleen_seg") and server.http().is_model_ready("segmentation_3d")
        found = clients.http(server, "spleen_seg", volume)
    wanted = clients.http(shipped, "spleen_seg", volume)
    for name in ("MASK", "CONTOUR"):
        np.testing.assert_array_equal(found.arrays[name], wanted.arrays[name])
    assert found.boxes() == wanted.boxes()

    (target / "backends" / "pytorch").unlink()
    run(*without_network(), package / "install.sh", "--uninstall", target)
    assert [p for p in target.rglob("*") if p.is_file()] == []


@pytest.mark.skipif("TRITON_HOME" in os.environ, reason="that Triton has a PyTorch backend of its own")
def test_the_pytorch_backend_with_its_libtorch_needs_nothing_from_elsewhere(tmp_path):
    """What package.sh --with-pytorch puts beside the object is all that it needs. Packing 450 MB takes longer than it tells."""
    folder = tmp_path / "pytorch"
    folder.mkdir()
    shutil.copy(Path(setting("SPLEENSEG_BACKENDS")) / "pytorch" / "libtriton_pytorch.so", folder)
    shell = """
        source scripts/lib/common.sh; source scripts/lib/environments.sh; source scripts/lib/release.sh
        copy_libtorch "$(environment_packages libtorch)" "$1"
    """
    subprocess.run(["bash", "-c", shell, "bash", str(folder)], cwd=ROOT, check=True, timeout=120)
    needed = {}
    for library in folder.iterdir():
        listed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True, timeout=60).stdout
        needed |= {line.split()[0]: line.split()[2] for line in listed.splitlines() if "=>" in line}
    assert {"libtorch_cpu.so", "libc10.so"} <= needed.keys() and "not" not in needed.values()
    elsewhere = {name: path for name, path in needed.items() if not path.startswith((str(folder), "/lib", "/usr/lib"))}
    assert elsewhere == {}

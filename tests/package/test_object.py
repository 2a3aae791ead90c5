"""The release build of libtriton_spleenseg.so: where it loads, what it shows, and that anyone can make the same bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import BUILD_S, ROOT, script

# The first test of the file waits for the build.
pytestmark = pytest.mark.timeout(BUILD_S + 60)

FLOOR = (2, 31)
ENTRY_POINTS = {
    "TRITONBACKEND_Finalize",
    "TRITONBACKEND_GetBackendAttribute",
    "TRITONBACKEND_Initialize",
    "TRITONBACKEND_ModelFinalize",
    "TRITONBACKEND_ModelInitialize",
    "TRITONBACKEND_ModelInstanceExecute",
    "TRITONBACKEND_ModelInstanceFinalize",
    "TRITONBACKEND_ModelInstanceInitialize",
    "TRITONBACKEND_ModelInstanceReady",
}
# All of them are glibc's own: since 2.34 libc.so.6 holds what was in libdl and libpthread.
C_LIBRARY = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "libgcc_s.so.1"}


@pytest.fixture(scope="module")
def built() -> Path:
    return Path(script("build.sh", "--release"))


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_loads_on_the_oldest_glibc_that_is_promised(built):
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+(?:\.\d+)+)", output("readelf", "--version-info", "--wide", str(built)))}
    assert versions and max(versions) <= FLOOR, f"needs glibc {max(versions)}"


def test_exports_the_entry_points_and_nothing_else(built):
    names = {line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--defined-only", str(built)).splitlines()}
    assert names == ENTRY_POINTS


def test_asks_the_server_for_nothing_but_its_abi(built):
    """Undefined symbols without a version come from whoever loads the object."""
    undefined = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", str(built)).splitlines()]
    strangers = [name for name in undefined if "@" not in name and not name.startswith("TRITON")]
    # Weak hooks of the toolchain, absent on most systems.
    weak = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_thread_atexit_impl", "gettid", "statx", "copy_file_range", "getrandom"}
    assert set(strangers) <= weak


def test_needs_the_c_library_alone_and_looks_nowhere_for_it(built):
    dynamic = output("readelf", "-d", str(built))
    needed = set(re.findall(r"NEEDED.*\[(.+)\]", dynamic))
    assert "libc.so.6" in needed and needed <= C_LIBRARY
    assert not re.search("RPATH|RUNPATH", dynamic)
    assert "NODELETE" in dynamic


def test_names_no_path_of_the_machine_that_built_it(built):
    text = built.read_bytes()
    for path in (str(ROOT), str(Path.home()), "/.cargo/registry", "/.rustup/"):
        assert path.encode() not in text, path


def test_has_a_build_id(built):
    """By which a log or a result can name the object that it came from."""
    assert re.search(r"Build ID: [0-9a-f]{40}", output("readelf", "-n", str(built)))


def test_is_the_same_wherever_it_is_built(built, tmp_path):
    """From a copy of the source in another folder, with a target folder of its own."""
    copy = tmp_path / "a folder with another name"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True, timeout=60
    ).stdout.decode()
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.endswith((".pt", ".png", ".svg")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    again = Path(script("build.sh", "--release", root=copy, CARGO_TARGET_DIR=str(tmp_path / "target")))
    assert again.is_relative_to(tmp_path)
    assert sha256(again.read_bytes()).hexdigest() == sha256(built.read_bytes()).hexdigest()

"""The shared object that people install: what it shows to the server and what it needs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from triton import setting


@pytest.fixture(scope="module")
def backend() -> str:
    return str(Path(setting("SPLEENSEG_BACKENDS")) / "spleenseg" / "libtriton_spleenseg.so")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_only_the_entry_points_are_exported(backend):
    names = {line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--defined-only", backend).splitlines()}
    strangers = {name for name in names if not name.startswith("TRITONBACKEND_")}
    assert not strangers
    required = {
        "TRITONBACKEND_Initialize",
        "TRITONBACKEND_ModelInitialize",
        "TRITONBACKEND_ModelFinalize",
        "TRITONBACKEND_ModelInstanceInitialize",
        "TRITONBACKEND_ModelInstanceFinalize",
        "TRITONBACKEND_ModelInstanceExecute",
    }
    assert required <= names


def test_needs_nothing_but_the_c_library(backend):
    needed = re.findall(r"^\s*(\S+)", output("ldd", backend), re.MULTILINE)
    forbidden = [name for name in needed if re.search(r"stdc\+\+|torch|c10|cuda|cudart|python", name)]
    assert not forbidden, needed


def test_stays_loaded(backend):
    """Triton unloads the object of a backend without models; Rust's thread-local destructors would then be gone."""
    assert "NODELETE" in output("readelf", "-d", backend)

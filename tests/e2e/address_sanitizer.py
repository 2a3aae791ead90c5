"""That a server under AddressSanitizer ends at the first mistake of a backend. scripts/test.sh sanitizers runs it together with other
tests of this folder, on backends that are compiled for it; it is no part of the ordinary run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import watched
from models import Repository
from triton import Triton


def test_a_backend_that_reads_beyond_its_block_is_caught(tmp_path):
    backends = tmp_path / "backends"
    (backends / "faulty").mkdir(parents=True)
    (backends / "faulty" / "libtriton_faulty.so").symlink_to(Path(os.environ["SPLEENSEG_FAULTY_BACKEND"]))
    repository = Repository(tmp_path / "models")
    tensors = "input [ { name: 'A' data_type: TYPE_FP32 dims: [ 1 ] } ] output [ { name: 'B' data_type: TYPE_FP32 dims: [ 1 ] } ]"
    repository.write("faulty", f"name: 'faulty' backend: 'faulty' {tensors} instance_group [ {{ kind: KIND_CPU }} ]")
    server = Triton(repository.root, backends, tmp_path / "log")
    with pytest.raises(RuntimeError, match="before it was ready"):
        watched(server).start()
    log = server.text()
    assert "heap-buffer-overflow" in log and "in TRITONBACKEND_Initialize" in log and "0 bytes to the right of 24-byte region" in log

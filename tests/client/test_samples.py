"""examples/clients as a newcomer runs them: each gives the mask that scripts/segment.py gives, and is short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
from conftest import ROOT
from spleen_client.nifti import NiftiScan
from spleen_client.segmenter import Segmenter
from spleen_client.server import Server

CLIENTS = sorted((ROOT / "examples" / "clients").glob("*_client.py"))


@pytest.mark.parametrize("sample", CLIENTS, ids=lambda p: p.stem)
def test_a_sample_gives_the_same_mask(sample, server, ct, tmp_path):
    assert len(sample.read_text().splitlines()) < 40
    port = server.grpc_port if sample.stem == "grpc_client" else server.http_port
    command = [sys.executable, sample, ct, tmp_path / "mask.nii.gz", f"localhost:{port}"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    with Server(f"localhost:{server.http_port}") as connected:
        wanted = Segmenter(connected).segment(NiftiScan(ct))
    mask = nibabel.load(tmp_path / "mask.nii.gz")
    np.testing.assert_array_equal(np.asarray(mask.dataobj), wanted.mask)
    np.testing.assert_array_equal(mask.affine, nibabel.load(ct).affine)
    assert float(done.stdout.split(":")[1]) == pytest.approx(wanted.millilitres, abs=1e-3)
    assert not list(Path("/dev/shm").glob("spleen"))


def test_there_is_one_for_each_way():
    assert [p.stem for p in CLIENTS] == ["grpc_client", "http_client", "shared_memory_client"]

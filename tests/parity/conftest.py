"""Fixtures of the parity tests: the pipeline's steps as a process, and the real CT."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rust_steps import Steps

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SPLEENSEG_TEST_DATA") or ROOT.parent / "shared" / "data")

# The reference runs on few cores everywhere, so that its sums are the same everywhere.
torch.set_num_threads(2)


def build_steps() -> Path:
    command = ["cargo", "build", "--release", "--locked", "--example", "steps", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        pytest.fail(f"{' '.join(command)} failed; its errors are above", pytrace=False)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return Path(next(m["executable"] for m in messages if m.get("target", {}).get("name") == "steps" and m.get("executable")))


@pytest.fixture(scope="session")
def program() -> Path:
    """The example `steps`: SPLEENSEG_STEPS names it, else it is built."""
    given = os.environ.get("SPLEENSEG_STEPS")
    return Path(given) if given else build_steps()


@pytest.fixture(scope="session", params=["cpu", "kernels"])
def steps(request, program, tmp_path_factory) -> Iterator[Steps]:
    """The steps of the pipeline: on the CPU, and as the CUDA kernels, compiled for the host."""
    arguments = [] if request.param == "cpu" else [request.param]
    with Steps(program, tmp_path_factory.mktemp("steps"), *arguments) as running:
        yield running


def nifti(name: str) -> np.ndarray:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no real CT: {path} is absent; SPLEENSEG_TEST_DATA names its folder")
    import nibabel

    return np.ascontiguousarray(np.asanyarray(nibabel.load(path).dataobj))


@pytest.fixture(scope="session")
def ct() -> np.ndarray:
    """The real CT, int16 Hounsfield units."""
    volume = nifti("ct_abdomen_3mm.nii.gz")
    assert volume.dtype == np.int16
    return volume


@pytest.fixture(scope="session")
def spleen() -> np.ndarray:
    """The spleen of the real CT, 0 and 1."""
    return (nifti("spleen_label_3mm.nii.gz") > 0).astype(np.uint8)

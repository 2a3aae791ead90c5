"""Fixtures of the client's tests: phantoms, and a stock Triton with small models whose network is a threshold."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "e2e")]

from models import SIZE, Repository  # noqa: E402: found through the line above
from triton import Triton, backend_folder  # noqa: E402

from spleen_phantom import make_phantom  # noqa: E402

SHAPE = (72, 64, 40)
# Scores whose argmax is 1 inside organs: their largest component is a shape that no axis order leaves as it is.
ORGANS = "np.concatenate([0.52 - x, x - 0.52], axis=1)"
# Ways to cut and resize that decide which voxels a server needs.
VARIANTS = {
    "margin": {"margin": "3,1,2"},
    "padded": {"margin": "6", "allow_smaller": "false"},
    "divisible": {"k_divisible": "4,8,2"},
    "low": {"b_min": "-0.5"},
    "high": {"b_min": "0.25", "b_max": "1.25"},
    "trilinear": {"mode": "trilinear"},
    "cropped": {},
}
SIZES = {"cropped": (-1, -1, -1)}


@dataclass
class Models:
    """Names of the models of the shared server. It also has a spleen_seg and a spleen_seg_native."""

    plain: str  # MASK and CONTOUR on the network's grid alone
    native: str
    int16: str
    slow: str  # its network takes 6 s
    variants: dict[str, str]
    orphan: str  # its network is not there


@pytest.fixture(scope="session")
def phantom():
    """A small phantom with air around it on every side, as a scan has."""
    made = make_phantom(7, SHAPE, ranges="heldout")
    made.ct[:3] = made.ct[-2:] = -1000
    return made


@pytest.fixture
def ct(phantom, tmp_path) -> Path:
    path = tmp_path / "ct.nii.gz"
    nibabel.save(nibabel.Nifti1Image(phantom.ct, phantom.affine), path)
    return path


@pytest.fixture(scope="session")
def started(tmp_path_factory) -> Iterator[tuple[Triton, Models]]:
    folder = tmp_path_factory.mktemp("client")
    repository = Repository(folder / "models")
    child = repository.child(ORGANS)
    native = {"shipped": "spleen_seg_native"}
    models = Models(
        repository.spleen(child),
        repository.spleen(child, data_type="TYPE_UINT8", **native),
        repository.spleen(child, input_type="TYPE_INT16", data_type="TYPE_UINT8", **native),
        repository.spleen(repository.child(f"after(6, {ORGANS})"), **native),
        {name: repository.spleen(child, parameters, data_type="TYPE_UINT8", size=SIZES.get(name, SIZE), **native) for name, parameters in VARIANTS.items()},
        repository.spleen("nobody"),
    )
    # What a client finds that names no model.
    for name, source in (("spleen_seg", models.plain), ("spleen_seg_native", models.native)):
        config = (repository.root / source / "config.pbtxt").read_text()
        repository.write(name, config.replace(f'name: "{source}"', f'name: "{name}"'))
    server = Triton(folder / "models", backend_folder(folder / "backends"), folder / "server.log")
    with server:
        yield server, models
    # Every region that a client made was given back, whatever became of its requests.
    assert not list(Path("/dev/shm").glob("spleenseg_client_*"))


@pytest.fixture(scope="session")
def server(started) -> Triton:
    return started[0]


@pytest.fixture(scope="session")
def models(started) -> Models:
    return started[1]


@pytest.fixture
def voxels():
    """Reads a NIfTI file in RAS."""

    def read(path) -> np.ndarray:
        return np.asarray(nibabel.as_closest_canonical(nibabel.load(path)).dataobj)

    return read

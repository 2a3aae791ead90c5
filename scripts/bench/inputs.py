"""The volumes that are sent, and the network for those whose masks must be known to be hard."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from .repositories import ROOT
from .server import from_e2e

SHAPE = (512, 512, 114)


def phantom(slices: int, seed: int = 7) -> np.ndarray:
    """A synthetic abdomen in Hounsfield units. More slices than usual are the same body, sampled more finely."""
    base = _usual_phantom(seed)
    nearest = (np.arange(slices) * SHAPE[2]) // slices
    return np.ascontiguousarray(base[:, :, nearest], dtype=np.float32)


@lru_cache(maxsize=1)
def _usual_phantom(seed: int) -> np.ndarray:
    sys.path.insert(0, str(ROOT / "scripts"))
    from spleen_phantom import make_phantom

    return make_phantom(seed, SHAPE).ct


def noise(shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> np.ndarray:
    """Noise that, after scaling and resizing, lies above the threshold in about five voxels of a hundred, nowhere connected far: with
    `threshold_network` the argmax is a scatter of very many small components."""
    return np.random.default_rng(seed).uniform(-57.0, 118.0, shape).astype(np.float32)


# Not a mean of a few whole Hounsfield units, such as 0.5 is: those would decide by the last bit of the resized volume.
THRESHOLD = 0.50123


class Threshold(torch.nn.Module):
    """The spleen is where the volume is above a value. Takes next to no time, so that the other steps can be seen."""

    def __init__(self, value: float = THRESHOLD):
        super().__init__()
        self.value = value

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.value - volume, volume - self.value], dim=1)


def write_threshold_network(path: Path) -> Path:
    torch.jit.script(Threshold().eval()).save(str(path))
    return path


def as_the_network_gets_it(volume: np.ndarray) -> np.ndarray:
    """The volume after MONAI's pre-processing, [1,1,224,224,224]: what the network alone is measured with."""
    return from_e2e("reference").prepare(volume, (224, 224, 224)).resized


def write_raw(folder: Path, tensor: str, array: np.ndarray) -> str:
    """Writes the folder that perf_analyzer reads with --input-data."""
    folder.mkdir(parents=True, exist_ok=True)
    np.ascontiguousarray(array).tofile(folder / tensor)
    return str(folder)

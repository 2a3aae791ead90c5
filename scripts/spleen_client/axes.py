"""Axis orders and directions. All of it is swapping and flipping: views, no voxel is resampled."""

from __future__ import annotations

import numpy as np
from nibabel.orientations import apply_orientation, axcodes2ornt, inv_ornt_aff, ornt_transform

from . import ClientError

_PAIRS = ("RL", "AP", "SI")
RAS = axcodes2ornt("RAS")


def parse(codes: str) -> str:
    """Three letters: where each axis points to, such as RAS or LPS."""
    found = codes.upper()
    if len(found) != 3 or any(sum(c in pair for c in found) != 1 for pair in _PAIRS):
        raise ClientError(f"axes '{codes}': accepted are three letters, one each of R or L, A or P, S or I, such as RAS")
    return found


def from_ras(ras: np.ndarray, codes: str) -> np.ndarray:
    """A RAS array in the order that ``codes`` names."""
    return apply_orientation(ras, ornt_transform(RAS, axcodes2ornt(codes)))


def to_ras(array: np.ndarray, codes: str) -> np.ndarray:
    return apply_orientation(array, ornt_transform(axcodes2ornt(codes), RAS))


def spacing_from_ras(spacing, codes: str) -> tuple[float, float, float]:
    order = axcodes2ornt(codes)[:, 0].astype(int)
    return tuple(float(spacing[axis]) for axis in order)


def affine_ras(affine: np.ndarray, orientation: np.ndarray, shape) -> np.ndarray:
    """The affine of the RAS array of a volume with this affine, orientation and shape."""
    return affine @ inv_ornt_aff(orientation, shape)

"""From the network's grid back to the grid of the volume that was sent.

The server crops a volume to a box and resizes the box to the network's grid, each axis by itself. Both ways follow the
convention of MONAI's affines (and of torch without align_corners): voxel i of an axis covers the interval [i, i+1), its
centre lies at i + 1/2, and resizing maps the extent of the box, [0, n), onto the extent of the grid, [0, m). The centre of
the box's voxel j therefore lies at (j + 1/2) m/n in the grid, that is in its voxel floor((2j + 1) m / 2n), which is the
nearest one. torch calls this rule "nearest-exact"; its mode "nearest" is another one, floor(j m/n), and moves a mask by up
to half a voxel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from . import ClientError

PARAMETERS = ("crop_start", "crop_end", "input_shape")


@dataclass(frozen=True)
class Crop:
    """The box that was cut out of a volume of ``input_shape``: from ``start`` up to, not including, ``end``.

    With a margin or k_divisible it may reach outside the volume.
    """

    start: tuple[int, int, int]
    end: tuple[int, int, int]
    input_shape: tuple[int, int, int]

    @classmethod
    def of_response(cls, parameters: dict, volume: int = 0) -> Crop:
        """The box of one volume of the batch: each parameter is a JSON list with one entry for each volume."""
        found = []
        for name in PARAMETERS:
            try:
                entry = json.loads(parameters[name])[volume]
                found.append(tuple(int(v) for v in entry))
            except (KeyError, IndexError, TypeError, ValueError):
                found.append(())
            if len(found[-1]) != 3:
                raise ClientError(
                    f"response parameter {name}: found {parameters.get(name)!r}, needed is a list such as [[12,40,0]]"
                )
        crop = cls(*found)
        if any(e <= s for s, e in zip(crop.start, crop.end)):
            raise ClientError(f"the response's box is empty: crop_start {crop.start}, crop_end {crop.end}")
        return crop


def nearest(box: int, grid: int) -> np.ndarray:
    """For each voxel along an axis of the box, the voxel of the grid that holds its centre."""
    return (2 * np.arange(box) + 1) * grid // (2 * box)


def to_volume(labels: np.ndarray, crop: Crop) -> np.ndarray:
    """``labels`` of the network's grid (three axes) in the grid of the volume that was sent; 0 outside the box."""
    out = np.zeros(crop.input_shape, labels.dtype)
    inside, picked = [], []
    for start, end, size, grid in zip(crop.start, crop.end, crop.input_shape, labels.shape):
        low, high = max(start, 0), min(end, size)
        inside.append(slice(low, max(high, low)))
        picked.append(nearest(end - start, grid)[low - start : max(high, low) - start])
    out[tuple(inside)] = labels[np.ix_(*picked)]
    return out


def contour(labels: np.ndarray) -> np.ndarray:
    """1 where 26 times the label exceeds the sum of the 26 labels around it (0 outside the volume): MONAI's LabelToContour."""
    out = np.zeros(labels.shape, np.uint8)
    places = ndimage.find_objects((labels > 0).view(np.uint8))
    if places:
        # Around the box of all labels there are zeros alone.
        box = places[0]
        inside = np.pad(labels[box].astype(np.int32), 1)
        total = inside
        for axis in range(3):
            total = ndimage.correlate1d(total, np.ones(3, np.int32), axis, mode="constant")
        out[box] = (27 * inside > total)[1:-1, 1:-1, 1:-1]
    return out

"""The client's mapping back: the inverse of what MONAI's crop and resize did, by MONAI's own affines and by voxel values."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.transforms import CropForeground, LabelToContour, Resize

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from spleen_client import ClientError  # noqa: E402: found through the line above
from spleen_client.grid import Crop, contour, nearest, to_volume  # noqa: E402

GRID = (17, 21, 23)  # odd: no voxel's centre falls on a border of the grid, so that nearest is one voxel
BOXES = {
    "inside": ((3, 5, 2), (16, 18, 11), (21, 25, 14)),
    "whole": ((0, 0, 0), (13, 17, 9), (13, 17, 9)),
    "low edge": ((0, 0, 0), (7, 11, 3), (19, 13, 8)),
    "high edge": ((8, 2, 5), (19, 13, 8), (19, 13, 8)),
    "one voxel": ((4, 6, 1), (5, 7, 2), (9, 9, 3)),
    "larger than the grid": ((2, 1, 3), (43, 62, 40), (47, 63, 41)),
}


@pytest.mark.parametrize("box", BOXES)
def test_agrees_with_the_affines_of_monai(box):
    """MONAI's own geometry of the resized volume says which of its voxels is nearest to each voxel of the scan."""
    start, end, shape = BOXES[box]
    inside = np.zeros(shape, np.float32)
    inside[tuple(slice(s, e) for s, e in zip(start, end))] = 1
    cropped, found_start, found_end = CropForeground(return_coords=True)(MetaTensor(inside[None], affine=torch.eye(4)))
    assert tuple(found_start) == start and tuple(found_end) == end
    resized = Resize(GRID, mode="area")(cropped)
    affine = np.asarray(resized.affine, dtype=np.float64)

    # Each grid voxel carries its own number, so the result says where every voxel was taken from.
    numbers = np.arange(1, np.prod(GRID) + 1, dtype=np.int64).reshape(GRID)
    taken = to_volume(numbers, Crop(start, end, shape))
    voxels = np.argwhere(inside > 0)
    in_grid = (np.linalg.inv(affine) @ np.c_[voxels, np.ones(len(voxels))].T).T[:, :3]
    found = np.stack(np.unravel_index(taken[tuple(voxels.T)] - 1, GRID), axis=1)
    np.testing.assert_array_equal(found, np.rint(in_grid).astype(int))
    assert (taken[inside == 0] == 0).all()


@pytest.mark.parametrize("box", [b for b in BOXES if b != "larger than the grid"])
def test_round_trip_restores_every_voxel(box):
    """Where the grid is finer than the box, MONAI's resize and the way back give the same labels again."""
    start, end, shape = BOXES[box]
    labels = np.zeros(shape, np.uint8)
    inside = tuple(slice(s, e) for s, e in zip(start, end))
    labels[inside] = np.random.default_rng(3).integers(0, 2, labels[inside].shape)
    resized = Resize(GRID, mode="nearest-exact")(torch.as_tensor(labels[inside][None], dtype=torch.float32))
    back = to_volume(np.asarray(resized)[0].astype(np.uint8), Crop(start, end, shape))
    np.testing.assert_array_equal(back, labels)


@pytest.mark.parametrize("box", [1, 2, 5, 31, 101, 223, 224, 225, 299, 401, 512])
def test_one_axis_is_torchs_nearest_exact(box):
    numbers = torch.arange(224, dtype=torch.float64)[None, None]
    expected = torch.nn.functional.interpolate(numbers, size=box, mode="nearest-exact")[0, 0].numpy().astype(int)
    # Where two voxels are equally near, torch takes the one that its rounding happens to choose.
    clear = (2 * np.arange(box) + 1) * 224 % (2 * box) != 0
    np.testing.assert_array_equal(nearest(box, 224)[clear], expected[clear])


def test_a_box_that_reaches_outside_the_volume():
    """As with a margin and padding: the same as mapping into a padded volume and cutting the padding off."""
    start, end, shape = (-3, 2, -1), (8, 9, 7), (6, 12, 5)
    numbers = np.arange(1, np.prod(GRID) + 1, dtype=np.int64).reshape(GRID)
    padded = to_volume(numbers, Crop((1, 6, 3), (12, 13, 11), (14, 20, 13)))
    expected = padded[4 : 4 + 6, 4 : 4 + 12, 4 : 4 + 5]
    np.testing.assert_array_equal(to_volume(numbers, Crop(start, end, shape)), expected)


def test_the_response_names_the_box_of_each_volume():
    parameters = {
        "crop_start": json.dumps([[1, 2, 3], [0, 0, 4]]),
        "crop_end": json.dumps([[5, 6, 7], [8, 9, 9]]),
        "input_shape": json.dumps([[10, 10, 10], [10, 10, 10]]),
    }
    assert Crop.of_response(parameters) == Crop((1, 2, 3), (5, 6, 7), (10, 10, 10))
    assert Crop.of_response(parameters, 1) == Crop((0, 0, 4), (8, 9, 9), (10, 10, 10))


@pytest.mark.parametrize(
    "wrong",
    [None, "", "no list", "[]", "[[1,2]]", "[1,2,3]", 7],
    ids=["absent", "empty", "text", "none", "two", "flat", "number"],
)
@pytest.mark.parametrize("name", ["crop_start", "crop_end", "input_shape"])
def test_what_is_wrong_with_the_response_is_said(name, wrong):
    parameters = {"crop_start": "[[1,2,3]]", "crop_end": "[[5,6,7]]", "input_shape": "[[9,9,9]]"}
    if wrong is None:
        del parameters[name]
    else:
        parameters[name] = wrong
    with pytest.raises(ClientError, match=f"response parameter {name}: found"):
        Crop.of_response(parameters)


def test_an_empty_box_is_refused():
    with pytest.raises(ClientError, match="box is empty"):
        Crop.of_response({"crop_start": "[[1,5,3]]", "crop_end": "[[5,5,7]]", "input_shape": "[[9,9,9]]"})


@pytest.mark.parametrize("labels", [2, 4])
def test_the_contour_is_monais(labels):
    volume = np.zeros((14, 12, 10), np.uint8)
    volume[:9, 2:, 3:8] = np.random.default_rng(5).integers(0, labels, (9, 10, 5))
    volume[1:6, 3:9, 4:8] = labels - 1
    wanted = LabelToContour()(torch.as_tensor(volume[None], dtype=torch.float32))[0].numpy()
    np.testing.assert_array_equal(contour(volume), wanted)
    assert 0 < wanted.sum() < (volume > 0).sum() and not contour(volume * 0).any()

"""The way back to the grid of the scan: MASK_NATIVE is MONAI's own inverse with mode nearest-exact, to the bit."""

from __future__ import annotations

import monai_steps
import numpy as np
import pytest
import torch
from monai.transforms import Resize
from volumes import SIZES, VOLUMES, air_with

PLACES = [
    {},
    {"margin": 3},
    {"margin": [0, 4, 2], "allow_smaller": False},
    {"k_divisible": 16},
    {"margin": 5, "allow_smaller": False, "k_divisible": [3, 8, 1]},
]


def labels_of(shape, seed: int) -> np.ndarray:
    """Labels among which every voxel can be told from its neighbours."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def assert_restored_as_monai(steps, parameters: dict, volume: np.ndarray, seed: int = 0) -> None:
    (place,) = steps.prepare(parameters, volume)
    labels = labels_of(place.resized.shape, seed)
    native, voxels = steps.restore(labels, place)
    expected = monai_steps.invert(parameters, volume, labels)
    assert native.shape == volume.shape
    np.testing.assert_array_equal(native, expected)
    assert voxels == {"grid": (labels > 0).sum(), "native": (expected > 0).sum()}


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_every_volume(steps, place):
    for seed, volume in enumerate(VOLUMES.values()):
        for size in SIZES[seed % 3 :: 3]:
            assert_restored_as_monai(steps, {**place, "spatial_size": list(size)}, volume, seed)


def test_every_ratio_of_small_sizes(steps):
    """Exact ties included: there the float32 rule of the reference decides."""
    for box in range(1, 25):
        volume = air_with((box + 2,) * 3, (slice(1, box + 1),) * 3)
        for size in range(1, 25, 3):
            assert_restored_as_monai(steps, {"spatial_size": [size, size + 1, size + 2]}, volume, box)


@pytest.mark.parametrize("mode", ["area", "trilinear", "nearest", "nearest-exact"])
def test_the_way_back_does_not_depend_on_the_way_there(steps, mode):
    for size in ([9, 30, 5], -1):
        assert_restored_as_monai(steps, {"mode": mode, "spatial_size": size}, VOLUMES["body, table and a burnt-in voxel"])


def test_a_volume_of_the_networks_size_comes_back_as_it_is(steps):
    volume = VOLUMES["all foreground"]
    (place,) = steps.prepare({"spatial_size": list(volume.shape)}, volume)
    labels = labels_of(volume.shape, 1)
    np.testing.assert_array_equal(steps.restore(labels, place)[0], labels)


@pytest.mark.parametrize(("box", "size"), [(5, 3), (3, 5), (40, 17), (17, 40), (1, 6), (6, 1), (23, 23)])
def test_align_corners_is_inverted_by_its_own_geometry(steps, box, size):
    """MONAI's trilinear resize of the labels' indices gives the exact places; the nearest index is the one to be taken."""
    parameters = {"mode": "trilinear", "align_corners": True, "spatial_size": [size, 1, 1]}
    volume = air_with((box + 2, 3, 3), (slice(1, box + 1), 1, 1))
    (place,) = steps.prepare(parameters, volume)
    labels = np.arange(size, dtype=np.uint8).reshape(size, 1, 1)
    native, _ = steps.restore(labels, place, align_corners=True)
    back = Resize([box, 1, 1], mode="trilinear", align_corners=True)
    places = back(torch.arange(size, dtype=torch.float32).reshape(1, size, 1, 1)).numpy().ravel()
    found = native[1 : box + 1, 1, 1]
    assert (np.abs(found - places) <= 0.5 + 1e-5).all(), (found, places)
    assert not native[0].any() and not native[-1].any()


def test_a_real_spleen_keeps_its_place(steps, ct, spleen):
    """To the network's grid and back: with MONAI's mode nearest the mask would move by half a voxel along every axis."""
    (place,) = steps.prepare({}, ct)
    box = tuple(slice(start, end) for start, end in zip(place.crop_start, place.crop_end))
    there = Resize([224, 224, 224], mode="area")(torch.from_numpy(spleen[box].astype(np.float32))[None])[0].numpy() > 0.5
    native, voxels = steps.restore(there.astype(np.uint8), place)
    np.testing.assert_array_equal(native, monai_steps.invert({}, ct, there))
    cornered = monai_steps.invert({}, ct, there, mode="nearest")

    def moved(mask: np.ndarray) -> np.ndarray:
        return np.array([np.mean(axis) for axis in np.nonzero(mask)]) - [np.mean(axis) for axis in np.nonzero(spleen)]

    def dice(mask: np.ndarray) -> float:
        return 2 * (mask.astype(bool) & spleen.astype(bool)).sum() / (mask.sum() + spleen.sum())

    assert np.abs(moved(native)).max() < 0.1
    assert moved(cornered).min() > 0.3
    assert dice(native) > dice(cornered) and dice(native) > 0.95
    assert voxels["native"] == native.sum()

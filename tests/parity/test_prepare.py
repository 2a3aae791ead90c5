"""Before the network: scaling, the box around the foreground, and the resize."""

from __future__ import annotations

import itertools

import monai_steps
import numpy as np
import pytest
from rust_steps import Prepared, Refused, Steps
from volumes import SIZES, VOLUMES, air_with, noise, with_not_finite

MODES = [
    {"mode": "area"},
    {"mode": "trilinear"},
    {"mode": "trilinear", "align_corners": False},
    {"mode": "trilinear", "align_corners": True},
    {"mode": "nearest"},
    {"mode": "nearest-exact"},
]
BOTH = {"mode": "area", "spatial_size": [9, 16, 5]}


def name(parameters: dict) -> str:
    return " ".join(f"{key}={value}" for key, value in parameters.items()) or "defaults"


def assert_equals_monai(steps: Steps, parameters: dict, volume: np.ndarray) -> Prepared:
    """Same box, same NaN, same infinities, and the rest within 1e-5 (of the largest value where that is above 1)."""
    expected, start, end = monai_steps.prepare(parameters, volume.astype(np.float32))
    (found,) = steps.prepare(parameters, volume)
    assert (found.crop_start, found.crop_end) == (start, end)
    assert found.input_shape == list(volume.shape)
    assert found.nan_count == np.isnan(volume).sum()
    assert found.inf_count == np.isinf(volume).sum()
    assert found.resized.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found.resized), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found.resized[~finite], expected[~finite])
    largest = np.abs(expected[finite]).max(initial=1.0)
    np.testing.assert_allclose(found.resized[finite], expected[finite], rtol=0, atol=1e-5 * largest)
    if start == [0, 0, 0] and expected.shape == volume.shape:
        np.testing.assert_array_equal(found.resized, expected)
    return found


@pytest.mark.parametrize("mode", MODES, ids=name)
@pytest.mark.parametrize("volume", VOLUMES)
def test_odd_shapes(steps, volume, mode):
    for size in SIZES:
        assert_equals_monai(steps, {**mode, "spatial_size": list(size)}, VOLUMES[volume])


@pytest.mark.parametrize("mode", MODES, ids=name)
def test_all_ratios_of_an_axis(steps, mode):
    """Where an index falls on a boundary, one rounding decides: every pair of small sizes, on every axis."""
    random = np.random.default_rng(3)
    for axis in range(3):
        for length in (1, 2, 3, 5, 8, 13, 41, 64, 97):
            shape = np.roll([length, 1, 1], axis)
            volume = random.uniform(0.0, 100.0, shape).astype(np.float32)
            marked = volume.copy()
            if length > 1:  # NaN shows which voxels are read, also those with a weight of 0
                marked.flat[::3] = np.nan
            for to in (1, 2, 3, 4, 7, 10, 16, 26, 41, 82, 83, 107, 109, 194):
                size = np.roll([to, 1, 1], axis).tolist()
                assert_equals_monai(steps, {**mode, "spatial_size": size}, volume)
                assert_equals_monai(steps, {**mode, "spatial_size": size}, marked)


@pytest.mark.parametrize(
    "parameters",
    [
        {"clip": False},
        {"b_min": -1},
        {"b_min": -1, "clip": False},
        {"b_min": 0.25, "b_max": 0.75},
        {"b_min": -3.5, "b_max": 255.0},
        {"b_min": None},
        {"b_max": None},
        {"b_min": -0.5, "b_max": None},
        {"b_min": None, "b_max": None, "clip": False},
        {"b_min": None, "clip": False},
        {"a_min": -57.3, "a_max": 164.7, "b_max": 0.9},
        {"a_min": 0.1, "a_max": 0.3},
        {"a_min": -1024, "a_max": 3071},
    ],
    ids=name,
)
def test_intensities(steps, parameters):
    for volume in (VOLUMES["a few hundred thousand voxels"], with_not_finite((19, 17, 23), 1), VOLUMES["all foreground"]):
        for mode in ({"spatial_size": -1}, {"spatial_size": [9, 16, 5]}, {"spatial_size": [9, 16, 5], "mode": "trilinear"}):
            assert_equals_monai(steps, {**parameters, **mode}, volume)


CROPS = [
    {"margin": margin, "allow_smaller": allow_smaller, "k_divisible": k_divisible}
    for margin, allow_smaller, k_divisible in itertools.product(
        (0, 4, [1, 0, 7]), (True, False), (1, 8, [4, 1, 16], 0, -1, [5, -3, 7])
    )
]


@pytest.mark.parametrize("crop", CROPS, ids=name)
def test_margin_and_divisibility(steps, crop):
    for volume in ("one voxel of foreground", "first and last voxel", "touches the last face of the last axis", "first axis of 1"):
        for size in (-1, [9, 16, 5]):
            assert_equals_monai(steps, {**crop, "spatial_size": size}, VOLUMES[volume])
        for mode in MODES:
            assert_equals_monai(steps, {**crop, **mode, "spatial_size": [9, 16, 5], "b_min": -1}, VOLUMES[volume])


def test_default_margin_is_the_same_with_both_settings(steps):
    # Foreground of 3x2x2 voxels at the border of a 10-cube: the two settings part only with a margin.
    volume = air_with((10, 10, 10), (slice(0, 3), slice(4, 6), slice(8, 10)))
    shapes = {}
    for margin, allow_smaller in itertools.product((0, 4), (True, False)):
        parameters = {"margin": margin, "allow_smaller": allow_smaller, "spatial_size": -1}
        shapes[margin, allow_smaller] = assert_equals_monai(steps, parameters, volume).resized.shape
    assert shapes[0, True] == shapes[0, False] == (3, 2, 2)
    assert shapes[4, True] != shapes[4, False]


@pytest.mark.parametrize("size", [-1, [-1, 8, -1], [0, 30, 0], [50, -1, 1], 12], ids=str)
@pytest.mark.parametrize("mode", MODES, ids=name)
def test_sizes_of_the_crop_stay_where_asked(steps, size, mode):
    for volume in ("body, table and a burnt-in voxel", "touches the first face of the first axis", "last axis of 1"):
        assert_equals_monai(steps, {**mode, "spatial_size": size}, VOLUMES[volume])


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("mode", MODES, ids=name)
def test_nan_and_infinity(steps, mode, clip):
    """Same box and same NaN voxels as the reference, when shrinking, growing, and copying."""
    for seed, shape in enumerate([(19, 17, 23), (5, 4, 3), (1, 40, 2)]):
        volume = with_not_finite(shape, seed)
        for size in ([7, 9, 11], [38, 34, 46], [30, 17, 5], [1, 1, 1], -1):
            assert_equals_monai(steps, {**mode, "clip": clip, "spatial_size": size}, volume)


def test_nan_outside_the_box_stays_outside(steps):
    volume = air_with((12, 12, 12), (slice(3, 9), slice(3, 9), slice(3, 9)))
    volume[0, 0, 0] = volume[11, 11, 11] = np.nan
    for mode in MODES:
        found = assert_equals_monai(steps, {**mode, "spatial_size": 5}, volume)
        assert found.crop_start == [3, 3, 3] and not np.isnan(found.resized).any()


@pytest.mark.parametrize("mode", MODES, ids=name)
def test_int16_gives_what_the_same_values_give_in_float32(steps, mode):
    limits = np.iinfo(np.int16)
    volume = np.random.default_rng(5).integers(-300, 400, (21, 18, 25)).astype(np.int16)
    volume[3, 4, 5], volume[5, 4, 3] = limits.min, limits.max
    for size in ([9, 16, 5], [30, 30, 30], -1):
        for clip in (True, False):
            parameters = {**mode, "spatial_size": size, "clip": clip}
            found = assert_equals_monai(steps, parameters, volume)
            (as_float,) = steps.prepare(parameters, volume.astype(np.float32))
            np.testing.assert_array_equal(found.resized, as_float.resized)


@pytest.mark.parametrize("size", [(2, 2, 2), (1, 1, 1), (1, 1, 2), (3, 1, 1), (223, 5, 230)], ids=str)
def test_large_windows(steps, size):
    """Means over up to a million voxels, where the order of a float32 sum shows; most of all when all are equal."""
    for volume in (noise((130, 110, 100), 11, mean=60, spread=60), np.full((130, 110, 100), 33.3, np.float32)):
        assert_equals_monai(steps, {"spatial_size": list(size)}, volume)


@pytest.mark.parametrize("window", [5, 6, 7, 8, 10, 12, 14, 16])
def test_windows_of_equal_voxels_of_every_size(steps, window):
    """A float32 sum of equal voxels has a bias that grows with the window: the reference's own must be met."""
    volume = np.full((8 * window, 8 * window, 8 * window), 160.0, np.float32)
    for shade in (130.0, 149.3, 160.0):
        volume[:] = shade
        assert_equals_monai(steps, {"spatial_size": 8}, volume)


def test_no_axis_is_special(steps):
    volume = noise((31, 17, 24), 12)
    (plain,) = steps.prepare({"spatial_size": [12, 15, 9]}, volume)
    for order in itertools.permutations(range(3)):
        size = [[12, 15, 9][axis] for axis in order]
        (turned,) = steps.prepare({"spatial_size": size}, volume.transpose(order))
        np.testing.assert_allclose(turned.resized, plain.resized.transpose(order), rtol=0, atol=1e-6)


def test_box_ends_at_the_last_foreground_voxel_wherever_it_is(steps):
    body = (slice(4, 8), slice(5, 9), slice(3, 6))
    for extra in itertools.product((0, 5, -1), repeat=3):
        volume = air_with((12, 13, 14), body)
        volume[extra] = 50.0
        assert_equals_monai(steps, {"spatial_size": -1}, volume)


def test_a_batch_is_each_volume_by_itself(steps):
    volumes = [VOLUMES[key] for key in ("all foreground", "one voxel of foreground", "first axis of 1000")]
    together = steps.prepare(BOTH, *volumes)
    for found, volume in zip(together, volumes, strict=True):
        (alone,) = steps.prepare(BOTH, volume)
        np.testing.assert_array_equal(found.resized, alone.resized)
        assert (found.crop_start, found.crop_end) == (alone.crop_start, alone.crop_end)


def test_a_volume_without_foreground_is_refused_by_its_place_in_the_batch(steps):
    air = np.full((6, 5, 4), -57.0, np.float32)
    nothing = np.full((6, 5, 4), np.nan, np.float32)
    good = VOLUMES["last voxel only"]
    for volumes, place in [((air,), 0), ((good, air), 1), ((good, good, nothing), 2)]:
        with pytest.raises(Refused, match=f"volume {place} of the batch .*no foreground") as refused:
            steps.prepare(BOTH, *volumes)
        assert refused.value.code == "InvalidArg"


@pytest.mark.parametrize("mode", MODES, ids=name)
def test_real_ct(steps, ct, mode):
    for parameters in ({}, {"margin": 5, "allow_smaller": False, "k_divisible": 16}, {"a_min": 0, "a_max": 200, "clip": False}):
        found = assert_equals_monai(steps, {**mode, **parameters}, ct)
        assert found.resized.shape == (224, 224, 224)


def test_real_ct_in_float32(steps, ct):
    assert_equals_monai(steps, {}, ct.astype(np.float32))
    assert_equals_monai(steps, {}, (ct + np.float32(0.25)).transpose(2, 0, 1).copy())

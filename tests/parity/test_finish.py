"""After the network: argmax, the largest components, the contour, and the output's element type."""

from __future__ import annotations

import itertools

import monai_steps
import numpy as np
import pytest
from rust_steps import Refused
from volumes import VOLUMES, smooth

SHAPES = [volume.shape for volume in VOLUMES.values() if volume.size < 100_000]
CLASSES = [1, 2, 3, 5]


def assert_kept_as_monai(steps, parameters: dict, labels: np.ndarray) -> bool:
    """Exact, unless components tie: then the sizes are MONAI's and the choice is the documented one."""
    found = steps.keep_largest(parameters, labels)
    expected = monai_steps.keep_largest(parameters, labels)
    np.testing.assert_array_equal(found, monai_steps.keep_last_of_equals(parameters, labels))
    tied = monai_steps.is_tied(parameters, labels)
    if tied:
        assert monai_steps.sizes_kept(parameters, labels, found) == monai_steps.sizes_kept(parameters, labels, expected)
    else:
        np.testing.assert_array_equal(found, expected)
    return tied


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("classes", CLASSES)
def test_argmax(steps, classes, dtype):
    for seed, shape in enumerate(SHAPES):
        logits = np.random.default_rng(seed).normal(size=(classes, *shape)).astype(dtype)
        found, nan_count = steps.argmax(logits)
        np.testing.assert_array_equal(found, monai_steps.argmax(logits))
        assert nan_count == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("classes", CLASSES)
def test_argmax_with_ties_nan_and_infinity(steps, classes, dtype):
    values = np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan], dtype)
    logits = np.random.default_rng(classes).choice(values, (classes, 21, 13, 17))
    logits[:, 0] = logits[:1, 0]
    found, nan_count = steps.argmax(logits)
    np.testing.assert_array_equal(found, monai_steps.argmax(logits))
    assert nan_count == np.isnan(logits).sum()


def label_maps(classes: int):
    """From dust to few large components, in odd shapes."""
    for seed, (shape, passes) in enumerate(itertools.product([(14, 12, 11), (1, 30, 17), (40, 1, 1), (25, 23, 2)], (0, 1, 3))):
        field = smooth((classes, *shape), seed, passes)
        field[0] += (seed % 3) * 0.7
        yield field.argmax(0).astype(np.uint8)


PARAMETERS = [
    {"applied_labels": applied, "independent": independent, "connectivity": connectivity, "num_components": count}
    for applied, independent, connectivity, count in itertools.product(
        (1, [1, 2], [2, 1], None, [4], [0, 1], []), (True, False), (None, 1, 2, 3), (0, 1, 2, 3)
    )
    # Sorting no component out of nothing is where the reference itself fails.
    if not (applied == [] and not independent)
]


@pytest.mark.parametrize("independent", [True, False])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_components_with_every_combination_of_parameters(steps, classes, independent):
    ties = exact = 0
    for parameters in PARAMETERS:
        if parameters["independent"] == independent:
            for labels in label_maps(classes):
                tied = assert_kept_as_monai(steps, parameters, labels)
                ties, exact = ties + tied, exact + (not tied)
    assert ties > 50 and exact > 500, "the label maps no longer show both cases"


def test_corner_edge_and_face_contact(steps):
    labels = np.zeros((10, 6, 6), np.uint8)
    labels[0:2, 0:2, 0:2] = labels[2:4, 2:4, 2:4] = 1
    labels[6:9, 0:2, 0:2] = 1
    sums = {}
    for connectivity in (None, 3, 2, 1):
        assert not assert_kept_as_monai(steps, {"connectivity": connectivity}, labels)
        sums[connectivity] = int(steps.keep_largest({"connectivity": connectivity}, labels).sum())
    # Two 2-cubes that touch in a corner hold 16 voxels, the block 12.
    assert sums == {None: 16, 3: 16, 2: 12, 1: 12}


def test_equal_components_choose_the_last_as_monai_does_with_few(steps):
    for count in (1, 2, 3):
        labels = np.zeros((9, 3, 9), np.uint8)
        labels[::4, 0, 0:2] = labels[::4, 2, 7:9] = 1
        parameters = {"num_components": count}
        found = steps.keep_largest(parameters, labels)
        np.testing.assert_array_equal(found, monai_steps.keep_last_of_equals(parameters, labels))
        assert found.sum() == 2 * count


def test_more_components_than_16_bits_can_count(steps):
    labels = (np.indices((90, 90, 90)) % 2 == 0).all(0).astype(np.uint8)
    assert labels.sum() > 2**16
    assert assert_kept_as_monai(steps, {}, labels)
    labels[40, 40, 41] = 1
    assert not assert_kept_as_monai(steps, {}, labels)


def test_one_component_of_every_voxel_and_none(steps):
    for value in (0, 1, 3):
        labels = np.full((20, 30, 40), value, np.uint8)
        for applied in (1, None, [1, 3]):
            assert not assert_kept_as_monai(steps, {"applied_labels": applied}, labels)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_contour(steps, classes):
    for labels in label_maps(classes):
        np.testing.assert_array_equal(steps.contour(labels), monai_steps.contour(labels))
    for shape in SHAPES:
        for labels in (np.ones(shape, np.uint8), np.full(shape, classes - 1, np.uint8)):
            np.testing.assert_array_equal(steps.contour(labels), monai_steps.contour(labels))


def test_contour_of_large_labels(steps):
    labels = np.random.default_rng(1).integers(0, 256, (12, 13, 14)).astype(np.uint8)
    labels[3:9, 3:9, 3:9] = 255
    np.testing.assert_array_equal(steps.contour(labels), monai_steps.contour(labels))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"num_components": 2}, {"applied_labels": [1, 2]}, {"applied_labels": None, "independent": False, "connectivity": 1}],
    ids=str,
)
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_from_logits_to_mask_and_contour(steps, classes, parameters):
    for seed, shape in enumerate([(31, 29, 33), (1, 50, 20)]):
        for dtype in (np.float32, np.float16):
            logits = smooth((classes, *shape), seed, 2).astype(dtype)
            mask, contour = steps.finish(parameters, logits)
            labels = monai_steps.argmax(logits)
            expected = monai_steps.keep_largest(parameters, labels)
            if monai_steps.is_tied(parameters, labels):
                expected = monai_steps.keep_last_of_equals(parameters, labels)
            np.testing.assert_array_equal(mask, expected)
            np.testing.assert_array_equal(contour, monai_steps.contour(expected))


def test_networks_own_size(steps):
    """224-cubed: one large body, dust, and a hole, all at once."""
    logits = smooth((2, 224, 224, 224), 4, 2)
    logits[0] += 0.4
    mask, contour = steps.finish({}, logits)
    labels = monai_steps.argmax(logits)
    assert not monai_steps.is_tied({}, labels)
    expected = monai_steps.keep_largest({}, labels)
    assert 0 < expected.sum() < labels.sum()
    np.testing.assert_array_equal(mask, expected)
    np.testing.assert_array_equal(contour, monai_steps.contour(expected))


def test_real_spleen_with_dust(steps, spleen):
    dust = np.random.default_rng(2).random(spleen.shape) < 0.01
    score = np.where(spleen | dust, 3.0, -3.0).astype(np.float32)
    logits = np.stack([-score, score])
    for connectivity in (None, 1, 2):
        parameters = {"connectivity": connectivity}
        mask, contour = steps.finish(parameters, logits)
        expected = monai_steps.keep_largest(parameters, monai_steps.argmax(logits))
        np.testing.assert_array_equal(mask, expected)
        np.testing.assert_array_equal(contour, monai_steps.contour(expected))
        assert spleen.sum() * 0.95 < mask.sum() < (spleen | dust).sum()


@pytest.mark.parametrize(
    ("data_type", "dtype"),
    [("FP32", "f4"), ("FP16", "f2"), ("UINT8", "u1"), ("INT32", "i4"), ("INT64", "i8"), ("BOOL", "?")],
)
def test_element_types(steps, data_type, dtype):
    labels = np.random.default_rng(0).integers(0, 2 if data_type == "BOOL" else 256, (7, 1, 300)).astype(np.uint8)
    written = steps.write(data_type, labels)
    assert written.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(written, labels)


def test_a_label_that_does_not_fit_is_refused(steps):
    with pytest.raises(Refused, match="label 2 does not fit BOOL"):
        steps.write("BOOL", np.array([[[0, 1, 2]]], np.uint8))

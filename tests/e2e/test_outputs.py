"""What a request may ask for, and the data types that the configuration may name."""

from __future__ import annotations

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from checks import assert_equals_monai, expected
from models import SIZE

NUMPY = {
    "TYPE_FP32": np.float32,
    "TYPE_FP16": np.float16,
    "TYPE_UINT8": np.uint8,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_BOOL": np.bool_,
}


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((50, 41, 37), seed=7)[None]


@pytest.mark.parametrize("asked", [["MASK"], ["CONTOUR"], ["CONTOUR", "MASK"], None], ids=str)
def test_only_what_is_asked_for_comes_back(server, models, volume, asked):
    answer = clients.grpc(server, models.pair(), volume, outputs=asked)
    assert sorted(answer.arrays) == sorted(asked or clients.OUTPUTS)
    assert_equals_monai(answer, volume)


def test_an_unknown_output_is_refused(server, models, volume):
    model = models.pair()
    with pytest.raises(tritonclient.http.InferenceServerException, match="SPLEEN"):
        clients.http(server, model, volume, outputs=["SPLEEN"])
    assert_equals_monai(clients.http(server, model, volume), volume)


@pytest.mark.parametrize("data_type", NUMPY)
def test_output_data_types(server, models, volume, data_type):
    answer = clients.http(server, models.pair(data_type=data_type), volume)
    triton = data_type.removeprefix("TYPE_")
    assert answer.data_types == {"MASK": triton, "CONTOUR": triton}
    mask, contour, _ = expected(volume[0])
    for name, wanted in (("MASK", mask), ("CONTOUR", contour)):
        assert answer.arrays[name].dtype == NUMPY[data_type]
        np.testing.assert_array_equal(answer.arrays[name][0], wanted.astype(NUMPY[data_type]))


def test_int16_input(server, models):
    volume = np.round(reference.blobs((50, 41, 37), seed=8)).astype(np.int16)[None]
    answer = clients.grpc(server, models.pair(input_type="TYPE_INT16"), volume)
    assert_equals_monai(answer, volume)


@pytest.mark.parametrize("data_type", ["TYPE_FP64", "TYPE_STRING", "TYPE_UINT16"])
def test_unsupported_output_data_type_refuses_the_load(server, models, data_type):
    name = models.write.spleen(models.two_classes, data_type=data_type)
    with pytest.raises(tritonclient.http.InferenceServerException, match=rf"MASK.*{data_type.removeprefix('TYPE_')}"):
        models.load(name)


@pytest.mark.parametrize("data_type", ["TYPE_FP64", "TYPE_UINT16", "TYPE_STRING"])
def test_unsupported_input_data_type_refuses_the_load(server, models, data_type):
    name = models.write.spleen(models.two_classes, input_type=data_type)
    with pytest.raises(tritonclient.http.InferenceServerException, match=rf"INPUT0.*{data_type.removeprefix('TYPE_')}"):
        models.load(name)


THREE_CLASSES = "np.concatenate([0.3 - x, 0.2 - np.abs(x - 0.5), x - 0.7], axis=1)"


def test_three_classes(server, models, volume):
    child = models.child(THREE_CLASSES)
    model = models.spleen(child, {"applied_labels": "1,2"}, data_type="TYPE_UINT8")
    answer = clients.http(server, model, volume)
    mask, _, _ = expected(volume[0], THREE_CLASSES, post={"applied_labels": (1, 2)})
    assert set(np.unique(mask)) == {0, 1, 2}
    assert_equals_monai(answer, volume, THREE_CLASSES, post={"applied_labels": (1, 2)})


def test_a_mask_without_foreground_is_a_result(server, models, volume):
    child = models.child("np.concatenate([x + 1, x], axis=1)")
    answer = clients.http(server, models.spleen(child), volume)
    for name in clients.OUTPUTS:
        assert answer.arrays[name].shape == (1, 1, *SIZE)
        assert not answer.arrays[name].any()


def test_ties_and_nan_scores(server, models, volume):
    # Equal scores everywhere: the lowest class, background, wins.
    answer = clients.http(server, models.spleen(models.child("np.concatenate([x, x], axis=1)")), volume)
    assert not answer.arrays["MASK"].any()
    # NaN counts as the largest score.
    expression = "np.concatenate([x, np.where(x > 0.5, np.nan, -1).astype(np.float32)], axis=1)"
    answer = clients.http(server, models.spleen(models.child(expression)), volume)
    assert_equals_monai(answer, volume, expression)


def test_nan_and_infinity_in_the_scan(server, models, volume):
    scan = volume.copy()
    scan[0, 20:22, 20, 18] = np.nan
    scan[0, 0, 0, 0] = np.inf
    scan[0, 5, 5, 5] = -np.inf
    answer = clients.http(server, models.pair(), scan)
    assert_equals_monai(answer, scan)

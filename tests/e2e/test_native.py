"""The mask on the scan's own grid, and what a response says of the mask and of where it came from."""

from __future__ import annotations

import hashlib
import json
import re

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from checks import assert_equals_monai, expected
from models import SIZE
from test_outputs import NUMPY

ALL = ["MASK", "CONTOUR", "MASK_NATIVE", "CONTOUR_NATIVE"]


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((50, 41, 37), seed=51)[None]


def assert_native_equals_monai(answer: clients.Answer, volumes: np.ndarray, size=SIZE, **pre) -> None:
    """The native outputs that came, and the counts, volume by volume."""
    counts, mask_counts = (json.loads(answer.parameters[key]) for key in ("voxels", "mask_voxels"))
    assert len(counts) == len(mask_counts) == len(volumes)
    for number, volume in enumerate(volumes):
        mask, _, _ = expected(volume, size=size, **pre)
        native, contour = reference.native(volume, mask, size, **pre)
        assert 0 < contour.sum() < native.sum() < native.size
        for name, wanted in (("MASK_NATIVE", native), ("CONTOUR_NATIVE", contour)):
            if name in answer.arrays:
                assert answer.arrays[name].shape == (len(volumes), 1, *volume.shape)
                np.testing.assert_array_equal(answer.arrays[name][number], wanted, err_msg=f"{name} of volume {number}")
        assert (counts[number], mask_counts[number]) == (native.sum(), mask.sum())


@pytest.mark.parametrize("asked", [None, ["MASK_NATIVE"], ["CONTOUR_NATIVE"], ["CONTOUR_NATIVE", "MASK"]], ids=str)
def test_native_outputs(server, models, volume, asked):
    answer = clients.http(server, models.pair(shipped="spleen_seg_native", data_type="TYPE_UINT8"), volume, outputs=asked)
    assert sorted(answer.arrays) == sorted(asked or ALL)
    assert_equals_monai(answer, volume)
    assert_native_equals_monai(answer, volume)


@pytest.mark.parametrize("data_type", NUMPY)
def test_data_types(server, models, volume, data_type):
    model = models.pair(shipped="spleen_seg_native", data_type=data_type)
    answer = clients.grpc(server, model, volume, outputs=["MASK_NATIVE", "CONTOUR_NATIVE"])
    assert {array.dtype.type for array in answer.arrays.values()} == {NUMPY[data_type]}
    assert_native_equals_monai(answer, volume)


@pytest.mark.parametrize("max_batch_size", [4, 0])
def test_batches_have_one_grid_and_a_box_for_each_volume(server, models, max_batch_size):
    child = models.child(dims=(-1,) * 5, max_batch_size=0) if max_batch_size == 0 else models.two_classes
    model = models.spleen(child, shipped="spleen_seg_native", max_batch_size=max_batch_size, data_type="TYPE_UINT8")
    first = reference.blobs((40, 44, 36), seed=52)
    second = np.full_like(first, -1000.0)
    second[5:30, 10:40, 3:20] = first[5:30, 10:40, 3:20]
    volumes = np.stack([first, second])
    answer = clients.http(server, model, volumes)
    assert_native_equals_monai(answer, volumes)
    starts = answer.boxes()[0]
    assert starts[0] != starts[1]


@pytest.mark.parametrize("allow_smaller", [True, False])
def test_a_margin_is_taken_off_again(server, models, volume, allow_smaller):
    scan = np.full_like(volume, -1000.0)
    scan[0, 2:40, 3:35, 1:30] = np.maximum(volume[0, 2:40, 3:35, 1:30], -40.0)
    model = models.pair({"margin": "6", "allow_smaller": str(allow_smaller).lower()}, shipped="spleen_seg_native", data_type="TYPE_UINT8")
    assert_native_equals_monai(clients.http(server, model, scan), scan, margin=6, allow_smaller=allow_smaller)


def test_native_outputs_in_shared_memory(server, models, volume):
    shapes = {name: (1, 1, *volume.shape[1:]) for name in ALL[2:]}
    answer = clients.shared_memory(server, models.pair(shipped="spleen_seg_native", data_type="TYPE_UINT8"), volume, shapes, "UINT8")
    assert_native_equals_monai(answer, volume)


def test_a_real_ct(server, models, real_ct):
    scan = real_ct[None]
    answer = clients.grpc(server, models.pair(shipped="spleen_seg_native", data_type="TYPE_UINT8"), scan, outputs=ALL[2:])
    assert_native_equals_monai(answer, scan)


def test_native_outputs_are_only_for_models_that_declare_them(server, models, volume):
    with pytest.raises(tritonclient.http.InferenceServerException, match="MASK_NATIVE"):
        clients.http(server, models.pair(), volume, outputs=["MASK_NATIVE"])


def test_native_dims_that_are_not_the_inputs_refuse_the_load(server, models):
    name = models.write.spleen("none", shipped="spleen_seg_native")
    path = models.write.root / name / "config.pbtxt"
    path.write_text(path.read_text().replace("dims: [ 1, -1, -1, -1 ]", "dims: [ 1, 512, 512, 114 ]"))
    with pytest.raises(tritonclient.http.InferenceServerException, match="MASK_NATIVE.*INPUT0's dims"):
        models.load(name)


def test_an_empty_and_a_tiny_mask_are_results(server, models):
    # The network's grid is finer than the scan: its first voxel lies between the centres of the scan's.
    scan = np.full((1, 9, 9, 9), -1000.0, np.float32)
    scan[0, 0, 0, 0] = scan[0, 8, 8, 8] = 60.0
    first_voxel = "np.concatenate([np.full_like(x, 0.5), (np.arange(x.size).reshape(x.shape) == 0).astype(np.float32)], axis=1)"
    for expression, grid in (("np.concatenate([x + 1, x], axis=1)", 0), (first_voxel, 1)):
        model = models.spleen(models.child(expression), shipped="spleen_seg_native", data_type="TYPE_UINT8")
        answer = clients.http(server, model, scan)
        assert json.loads(answer.parameters["mask_voxels"]) == [grid] == [answer.arrays["MASK"].sum()]
        assert json.loads(answer.parameters["voxels"]) == [0] == [answer.arrays["MASK_NATIVE"].sum()]


@pytest.mark.parametrize("send", [clients.http, clients.grpc])
def test_the_volume_in_millilitres_needs_the_spacing(server, models, volume, send):
    model = models.pair()
    assert "volume_ml" not in send(server, model, volume).parameters
    for text in ("0.8,0.8,1.5", "[0.8, 0.8, 1.5]"):
        parameters = send(server, model, volume, parameters={"spacing": text}).parameters
        (voxels,), (millilitres,) = json.loads(parameters["voxels"]), json.loads(parameters["volume_ml"])
        assert voxels > 0 and millilitres == pytest.approx(voxels * 0.8 * 0.8 * 1.5 / 1000, abs=0.00051)


@pytest.mark.parametrize("wrong", ["", "1,1", "0.8x0.8x1.5", "1,1,0", "1,1,-2", "nan,1,1", 1, True], ids=repr)
def test_a_malformed_spacing_is_refused(server, models, volume, wrong):
    model = models.pair()
    with pytest.raises(tritonclient.http.InferenceServerException, match="'spacing' is .*; accepted is .*0.8,0.8,1.5") as refused:
        clients.http(server, model, volume, parameters={"spacing": wrong})
    assert refused.value.status() == "400"
    assert_equals_monai(clients.http(server, model, volume), volume)


def test_where_a_result_came_from(server, models, volume):
    first, second = models.pair(), models.pair({"a_max": "120"})
    answers = [clients.http(server, model, volume).parameters for model in (first, first, second)]
    assert json.loads(answers[0]["network"]) == [f"{models.two_classes}/1"]
    assert re.fullmatch(r"spleenseg-\d+\.\d+\.\d+\+[0-9a-f]{16}", answers[0]["build_id"])
    hashes = [answer["config_hash"] for answer in answers]
    assert hashes[0] == hashes[1] != hashes[2]
    # The log says what the hash is of, and the file says which build it is.
    (line,) = [line for line in server.text().splitlines() if f"{second}: " in line and hashes[2] in line]
    assert answers[0]["build_id"] in line and ";a_max=120;" in line


def test_the_hash_can_be_computed_from_the_log(server, models, volume):
    model = models.pair()
    answer = clients.http(server, model, volume)
    (line,) = [line for line in server.text().splitlines() if f"{model}: " in line and "configuration" in line]
    text = re.search(r"configuration \w+: (.*)\"$", line).group(1)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == answer.parameters["config_hash"]


def test_what_is_not_asked_for_is_not_computed(server, models, volume):
    """The verbose log names the steps of a request."""
    client = server.http()
    model = models.pair(shipped="spleen_seg_native", data_type="TYPE_UINT8")
    client.update_log_settings({"log_verbose_level": 1})
    try:
        before = len(server.text())
        clients.http(server, model, volume, outputs=["MASK"], request_id="only-mask")
        clients.http(server, model, volume, outputs=["CONTOUR_NATIVE"], request_id="only-native")
        lines = {name: line for line in server.text()[before:].splitlines() for name in ("only-mask", "only-native") if f"'{name}': steps" in line}
    finally:
        client.update_log_settings({"log_verbose_level": 0})
    assert "restore" not in lines["only-mask"] and "contour" not in lines["only-mask"]
    assert "restore" in lines["only-native"] and "contour" in lines["only-native"]

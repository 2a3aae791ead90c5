"""What can be wrong with a request or with the network: one clear error, and the server goes on."""

from __future__ import annotations

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
import tritonclient.http
from checks import assert_equals_monai
from leaks import wait_for
from models import SIZE

Failed = tritonclient.http.InferenceServerException


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=20)[None]


def failure(server, model: str, volume: np.ndarray, **options) -> tuple[str, str]:
    """The status code and text of a request that must fail."""
    with pytest.raises(Failed) as error:
        clients.grpc(server, model, volume, **options)
    return error.value.status().removeprefix("StatusCode."), error.value.message()


def test_no_foreground(server, models, volume):
    model = models.pair(max_batch_size=4)
    air = np.full_like(volume, -57.0)  # a_min itself becomes 0, which is not foreground
    status, text = failure(server, model, np.concatenate([volume, air]))
    assert status == "INVALID_ARGUMENT"
    assert "foreground" in text and "volume 1" in text
    assert_equals_monai(clients.http(server, model, volume), volume)


def test_no_foreground_does_not_call_the_network(server, models, volume):
    child = models.child()
    failure(server, models.spleen(child), np.full_like(volume, -1000.0))
    statistics = server.http().get_inference_statistics(child)["model_stats"][0]["inference_stats"]
    assert statistics["success"].get("count", 0) == statistics["fail"].get("count", 0) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda v: v.astype(np.float64),
        lambda v: v[0],
        lambda v: v[None],
        lambda v: np.concatenate([v, v]),
        lambda v: v[:, :0],
    ],
    ids=["FP64", "three axes", "five axes", "batch over the limit", "an empty axis"],
)
def test_wrong_input(server, models, volume, wrong):
    model = models.pair()
    status, text = failure(server, model, np.ascontiguousarray(wrong(volume)))
    assert status == "INVALID_ARGUMENT", text
    assert_equals_monai(clients.http(server, model, volume), volume)


def test_more_than_the_limits(server, models, volume):
    """Refused by shape; the next request of the accepted size is answered."""
    limited = models.pair({"max_voxels": str(volume.size)})
    larger = np.concatenate([volume, volume[:, :1]], axis=1)
    status, text = failure(server, limited, larger)
    assert status == "INVALID_ARGUMENT"
    assert str(larger.size) in text and f"up to {volume.size}" in text and "max_voxels" in text
    assert_equals_monai(clients.http(server, limited, volume), volume)
    without_batch_axis = models.spleen(
        models.child(dims=(-1, -1, -1, -1, -1), max_batch_size=0), {"max_volumes": "2"}, max_batch_size=0
    )
    two = np.concatenate([volume, volume])
    status, text = failure(server, without_batch_axis, np.concatenate([two, volume]))
    assert status == "INVALID_ARGUMENT" and "3 volumes" in text and "max_volumes" in text
    assert_equals_monai(clients.http(server, without_batch_axis, two), two)


def test_missing_network_is_unavailable_until_it_is_there(server, models, volume):
    child = models.write.child()
    model = models.spleen(child)  # loads before its network: the order is free
    status, text = failure(server, model, volume)
    assert status == "UNAVAILABLE" and child in text
    models.load(child)
    assert_equals_monai(clients.http(server, model, volume), volume)
    models.unload(child)
    # Unloading goes on after the call has returned.
    wait_for(lambda: not server.http().is_model_ready(child))
    status, text = failure(server, model, volume)
    assert status == "UNAVAILABLE" and child in text


# expression, other options, words that the error must have besides the network's name
WRONG_NETWORKS = {
    "its own error": ("fail('out of liver')", {}, ["out of liver"]),
    "FP64": ("np.concatenate([x, x], 1).astype(np.float64)", {"data_type": "TYPE_FP64"}, ["FP64", "FP32"]),
    "INT32": ("np.concatenate([x, x], 1).astype(np.int32)", {"data_type": "TYPE_INT32"}, ["INT32", "FP32"]),
    "one class": ("x", {}, ["[1,1,24,20,16]"]),
    "another size": ("np.zeros((1, 2, 24, 20, 15), np.float32)", {}, ["[1,2,24,20,15]", "24,20,16"]),
    "another batch": ("np.zeros((2, 2, 24, 20, 16), np.float32)", {}, ["[2,2,24,20,16]"]),
    "four axes": ("np.zeros((2, 24, 20, 16), np.float32)", {}, ["[2,24,20,16]"]),
}


@pytest.mark.parametrize("case", WRONG_NETWORKS)
def test_wrong_networks(server, models, volume, case):
    expression, options, words = WRONG_NETWORKS[case]
    child = models.child(expression, **options)
    _, text = failure(server, models.spleen(child), volume)
    text = text.replace(", ", ",")
    for word in [child, *words]:
        assert word in text, text
    # The same server still answers a good request.
    assert_equals_monai(clients.http(server, models.pair(), volume), volume)


@pytest.mark.parametrize(
    ("parameter", "value"), [("segmentation_input", "image"), ("segmentation_output", "scores"), ("segmentation_version", "7")]
)
def test_names_that_the_network_does_not_have(server, models, volume, parameter, value):
    child = models.two_classes
    _, text = failure(server, models.spleen(child, {parameter: value}), volume)
    assert child in text and value in text, text


def test_a_network_that_takes_too_long(server, models, volume, tmp_path):
    """It answers when the client has its error, and not before."""
    child = models.load(models.write.commanded())
    model, go = models.spleen(child, {"segmentation_timeout_s": "0.3"}), tmp_path / "go"
    try:
        _, text = failure(server, model, volume, request_id=f"when({str(go)!r}, good(x))")
    finally:
        go.touch()
    assert child in text and "0.3" in text, text


def test_a_model_that_calls_itself(server, models, volume):
    name = models.write.name("itself")
    source = models.write.spleen("x")
    config = (models.write.root / source / "config.pbtxt").read_text()
    models.write.write(name, config.replace(f'"{source}"', f'"{name}"').replace('string_value: "x"', f'string_value: "{name}"'))
    with pytest.raises(Failed, match=f"{name}.*itself|itself.*{name}"):
        clients.grpc(server, models.load(name), volume)


def test_fp16_network(server, models, volume):
    expression = "np.concatenate([0.5 - x, x - 0.5], axis=1).astype(np.float16)"
    child = models.child(expression, data_type="TYPE_FP16")
    answer = clients.http(server, models.spleen(child), volume)
    assert_equals_monai(answer, volume, expression)
    assert answer.arrays["MASK"].shape == (1, 1, *SIZE)


def test_a_failed_request_leaves_a_line_in_the_log(server, models, volume):
    child = models.child("fail('no such organ')")
    model = models.spleen(child)
    with pytest.raises(Failed):
        clients.grpc(server, model, volume, request_id="case-17")
    lines = [line for line in server.text().splitlines() if "case-17" in line and line.startswith("W")]
    assert lines and "no such organ" in lines[-1]

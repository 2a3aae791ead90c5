"""What the PyTorch backend does beside the plain call: types, results of every form, batches, memory, refusals."""

from __future__ import annotations

import clients
import numpy as np
import pytest
import torch
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, np_to_triton_dtype


class Form(torch.nn.Module):
    """A dictionary out, an optional tensor in."""

    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        moved = x if shift is None else x + shift
        return {"moved": moved, "positive": moved > 0, "count": (moved > 0).sum(dim=1)}


class Picky(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        if bool(x.min() < 0):
            raise ValueError("negative voxels")
        return x * 2


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return x.add_(1).mul_(2)


class InAndSum(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return x, x.to(torch.float64).sum(dim=1)


class TwoChannels(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first = torch.nn.Conv3d(2, 5, 3, padding=1)
        self.second = torch.nn.Conv3d(5, 1, 1)

    def forward(self, volume: torch.Tensor):
        return self.second(torch.relu(self.first(volume)))


@pytest.fixture
def load(models, tmp_path):
    """Loads a module with a configuration and returns the model's name."""

    def load(module: torch.nn.Module, config: str) -> str:
        path = tmp_path / "model.pt"
        torch.jit.script(module.eval()).save(str(path))
        group = "" if "instance_group" in config else "instance_group [ { kind: KIND_CPU } ]"
        return models.load(models.write.torchscript(path, f"{config}\n{group}"))

    return load


def tensor(direction: str, name: str, data_type: str, dims: list[int], more: str = "") -> str:
    return f'{direction} [ {{ name: "{name}" data_type: TYPE_{data_type} dims: {dims} {more} }} ]\n'


def one_to_one(batch: int = 4, extra: str = "") -> str:
    return f"max_batch_size: {batch}\n{tensor('input', 'x', 'FP32', [-1])}{tensor('output', 'OUTPUT__0', 'FP32', [-1])}{extra}"


def given(name: str, value: np.ndarray) -> tritonclient.http.InferInput:
    tensor = tritonclient.http.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    tensor.set_data_from_numpy(value)
    return tensor


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def test_dictionary_and_optional_input(server, load):
    name = load(
        Form(),
        "max_batch_size: 4\n"
        + tensor("input", "x", "FP32", [3])
        + tensor("input", "shift", "FP32", [3], "optional: true")
        + tensor("output", "positive", "BOOL", [3])
        + tensor("output", "count", "INT64", [1], "reshape: { shape: [] }")
        + tensor("output", "moved", "FP32", [3]),
    )
    client = server.http()
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for inputs, moved in [([given("x", x)], x), ([given("x", x), given("shift", x)], 2 * x)]:
        answer = client.infer(name, inputs)
        np.testing.assert_array_equal(answer.as_numpy("moved"), moved)
        np.testing.assert_array_equal(answer.as_numpy("positive"), moved > 0)
        np.testing.assert_array_equal(answer.as_numpy("count"), (moved > 0).sum(axis=1, keepdims=True))
    only = client.infer(name, [given("x", x)], outputs=[tritonclient.http.InferRequestedOutput("count")])
    assert [output["name"] for output in only.get_response()["outputs"]] == ["count"]


@pytest.mark.parametrize("data_type", ["FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL"])
def test_types(server, load, data_type):
    dtype = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "BOOL": "bool"}.get(data_type, data_type.lower())
    config = "max_batch_size: 2\n" + tensor("input", "INPUT__0", data_type, [5])
    config += tensor("output", "OUTPUT__0", data_type, [5]) + tensor("output", "OUTPUT__1", "FP64", [1], "reshape: { shape: [] }")
    name = load(InAndSum(), config)
    x = np.array([[0, 1, 2, 100, 7], [1, 0, 0, 3, 127]]).astype(dtype)
    answer = server.http().infer(name, [given("INPUT__0", x)])
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT__0"), x)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT__1")[:, 0], x.astype(np.float64).sum(axis=1))


def test_one_bad_request_of_a_batch_fails_alone(server, load):
    batching = "dynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: [ 3 ] }"
    name = load(Picky(), one_to_one(extra=batching))
    client = server.http()
    values = [1.0, -1.0, 2.0]
    pending = [client.async_infer(name, [given("x", np.full((1, 2), value, np.float32))]) for value in values]
    for value, handle in zip(values, pending):
        if value < 0:
            with pytest.raises(InferenceServerException, match="negative voxels") as failure:
                handle.get_result()
            assert "Traceback" not in str(failure.value) and "frame #" not in str(failure.value)
        else:
            np.testing.assert_array_equal(handle.get_result().as_numpy("OUTPUT__0"), np.full((1, 2), 2 * value))
    found = client.get_inference_statistics(name)["model_stats"][0]
    counts = found["inference_stats"]
    assert (counts["success"]["count"], counts["fail"]["count"], found["execution_count"]) == (2, 1, 1)


def test_requests_of_different_shapes_in_one_batch(server, load):
    name = load(Picky(), one_to_one(extra="dynamic_batching { max_queue_delay_microseconds: 200000 }"))
    client = server.http()
    inputs = [np.random.default_rng(n).random((1, 2 + n % 2), dtype=np.float32) for n in range(4)]
    pending = [client.async_infer(name, [given("x", x)]) for x in inputs]
    for x, handle in zip(inputs, pending):
        np.testing.assert_array_equal(handle.get_result().as_numpy("OUTPUT__0"), 2 * x)


def test_a_network_that_works_in_place_leaves_the_clients_memory_alone(server, load):
    name = load(InPlace(), one_to_one())
    client = server.http()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with clients.region(client, x.nbytes) as (region, handle):
        shm.set_shared_memory_region(handle, [x])
        shared = tritonclient.http.InferInput("x", list(x.shape), "FP32")
        shared.set_shared_memory(region, x.nbytes)
        for _ in range(3):
            np.testing.assert_array_equal(client.infer(name, [shared]).as_numpy("OUTPUT__0"), (x + 1) * 2)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, x.shape), x)


@pytest.mark.parametrize("sharing", ["true", "false"])
def test_two_instances(server, load, sharing):
    extra = "instance_group [ { kind: KIND_CPU count: 2 } ]\n" + parameter("ENABLE_WEIGHT_SHARING", sharing)
    name = load(Picky(), one_to_one(extra=extra))
    client = server.http()
    inputs = [np.full((1, 4), n, np.float32) for n in range(12)]
    pending = [client.async_infer(name, [given("x", x)]) for x in inputs]
    for x, handle in zip(inputs, pending):
        np.testing.assert_array_equal(handle.get_result().as_numpy("OUTPUT__0"), 2 * x)


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last_3d"])
def test_several_channels_and_volumes_in_either_memory_format(server, load, memory_format):
    module = TwoChannels().eval()
    config = "max_batch_size: 3\n" + tensor("input", "volume", "FP32", [2, -1, -1, -1])
    config += tensor("output", "OUTPUT__0", "FP32", [1, -1, -1, -1]) + parameter("MEMORY_FORMAT", memory_format)
    x = np.random.default_rng(3).random((3, 2, 7, 9, 5), dtype=np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(x)).numpy()
    answer = server.http().infer(load(module, config), [given("volume", x)])
    np.testing.assert_allclose(answer.as_numpy("OUTPUT__0"), expected, atol=1e-5)


def test_parameters_without_effect_are_said_once_each(server, load):
    keys = ["INFERENCE_MODE", "ENABLE_JIT_EXECUTOR", "ENABLE_CACHE_CLEANING"]
    name = load(Picky(), one_to_one(extra="".join(parameter(key, "true") for key in keys)))
    lines = [line for line in server.text().splitlines() if f"model {name}:" in line]
    for key in keys:
        assert sum(key in line and line.startswith("I") for line in lines) == 1, lines


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda config: config + parameter("MEMORY_FORMAT", "channels_first"), ["MEMORY_FORMAT", "channels_first", "channels_last_3d"]),
        (lambda config: config + parameter("INTRA_OP_THREAD_COUNT", "none"), ["INTRA_OP_THREAD_COUNT", "none", "from 1"]),
        (lambda config: config + 'default_model_filename: "other.pt"', ["other.pt"]),
        (lambda config: config.replace("OUTPUT__0", "OUTPUT__3"), ["OUTPUT__3", "returns 1"]),
        (lambda config: config.replace("FP32", "STRING"), ["TYPE_STRING", "TYPE_FP32"]),
        (lambda config: config.replace('"x"', '"INPUT__1"'), ["INPUT__1", "forward(x)"]),
    ],
)
def test_what_cannot_be_served_refuses_the_load(server, load, change, parts):
    with pytest.raises(InferenceServerException) as refusal:
        load(Picky(), change(one_to_one()))
    for part in parts:
        assert part in str(refusal.value)
    assert server.alive()


@pytest.mark.parametrize(("data_type", "dims", "part"), [("FP64", [-1], "returned FP32"), ("FP32", [-1, 2], "returned [1, 2]")])
def test_a_result_unlike_the_configuration_is_an_error(server, load, data_type, dims, part):
    config = "max_batch_size: 4\n" + tensor("input", "x", "FP32", [-1]) + tensor("output", "OUTPUT__0", data_type, dims)
    name = load(Picky(), config)
    with pytest.raises(InferenceServerException) as failure:
        server.http().infer(name, [given("x", np.ones((1, 2), np.float32))])
    assert part in str(failure.value)

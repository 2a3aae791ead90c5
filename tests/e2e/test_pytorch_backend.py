"""TorchScript networks in this project's PyTorch backend, alone and below spleen_seg."""

from __future__ import annotations

import clients
import numpy as np
import pytest
import reference
import torch
import tritonclient.http
from models import SIZE

CONFIG = """
max_batch_size: {batch}
input [ {{ name: "INPUT__0" data_type: TYPE_FP32 dims: [ 1, -1, -1, -1 ] }} ]
output [ {{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2, -1, -1, -1 ] }} ]
instance_group [ {{ kind: KIND_CPU }} ]
{extra}
"""
CHANNELS_LAST = 'parameters { key: "MEMORY_FORMAT" value { string_value: "channels_last_3d" } }'


class TwoInputs(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor):
        return left + right, left * right


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    torch.manual_seed(3)
    module = torch.nn.Sequential(
        torch.nn.Conv3d(1, 4, 3, padding=1), torch.nn.BatchNorm3d(4), torch.nn.ReLU(), torch.nn.Conv3d(4, 2, 3, padding=1)
    ).eval()
    path = tmp_path_factory.mktemp("network") / "model.pt"
    torch.jit.script(module).save(str(path))
    return module, path


def ask(server, model: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given = []
    for name, value in tensors.items():
        tensor = tritonclient.http.InferInput(name, list(value.shape), clients.np_to_triton_dtype(value.dtype))
        tensor.set_data_from_numpy(value)
        given.append(tensor)
    return clients.http_answer(server.http().infer(model, given)).arrays


def run(module: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return module(torch.as_tensor(x)).numpy()


@pytest.mark.parametrize("extra", ["", CHANNELS_LAST], ids=["contiguous", "channels last"])
def test_equals_torch(server, models, network, extra):
    module, path = network
    model = models.load(models.write.torchscript(path, CONFIG.format(batch=2, extra=extra)))
    x = np.random.default_rng(0).random((2, 1, 12, 10, 8), dtype=np.float32)
    np.testing.assert_allclose(ask(server, model, {"INPUT__0": x})["OUTPUT__0"], run(module, x), atol=1e-5)


def test_requests_of_a_batch_get_their_own_rows(server, models, network):
    module, path = network
    extra = "dynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: [ 3 ] }"
    model = models.load(models.write.torchscript(path, CONFIG.format(batch=4, extra=extra)))
    random = np.random.default_rng(1)
    volumes = [random.random((1, 1, 9, 9, 9), dtype=np.float32) for _ in range(3)]
    client = server.http()
    pending = []
    for volume in volumes:
        tensor = tritonclient.http.InferInput("INPUT__0", list(volume.shape), "FP32")
        tensor.set_data_from_numpy(volume)
        pending.append(client.async_infer(model, [tensor]))
    for volume, handle in zip(volumes, pending):
        np.testing.assert_allclose(handle.get_result().as_numpy("OUTPUT__0"), run(module, volume), atol=1e-5)
    statistics = client.get_inference_statistics(model)["model_stats"][0]
    assert statistics["inference_count"] == 3
    assert statistics["execution_count"] == 1


def test_several_inputs_by_argument_name_and_several_outputs(server, models, tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.script(TwoInputs()).save(str(path))
    model = models.load(
        models.write.torchscript(
            path,
            """
max_batch_size: 2
input [ { name: "right" data_type: TYPE_FP32 dims: [ 3 ] }, { name: "left" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 3 ] }, { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 3 ] } ]
# No instance_group: the GPUs that Triton finds, else the CPU.
""",
        )
    )
    left, right = (np.random.default_rng(n).random((2, 3), dtype=np.float32) for n in (5, 6))
    found = ask(server, model, {"right": right, "left": left})
    np.testing.assert_array_equal(found["OUTPUT__0"], left + right)
    np.testing.assert_array_equal(found["OUTPUT__1"], left * right)


def test_an_error_of_the_network_reaches_the_client(server, models, network):
    _, path = network
    config = CONFIG.format(batch=2, extra="").replace("dims: [ 1, -1", "dims: [ -1, -1")
    model = models.load(models.write.torchscript(path, config))
    with pytest.raises(tritonclient.http.InferenceServerException, match="channels"):
        ask(server, model, {"INPUT__0": np.zeros((1, 3, 5, 5, 5), np.float32)})
    # And through spleen_seg's own call of it.
    assert server.alive()


def test_below_spleen_seg(server, models, network):
    """The mask equals MONAI's post-processing of what the served network itself answers."""
    _, path = network
    child = models.load(models.write.torchscript(path, CONFIG.format(batch=1, extra=CHANNELS_LAST)))
    model = models.spleen(child)
    volume = reference.blobs((50, 60, 40), seed=30)[None]
    prepared = reference.prepare(volume[0], SIZE)
    scores = ask(server, child, {"INPUT__0": prepared.resized})["OUTPUT__0"]
    mask, contour = reference.finish(scores[0])
    assert 0 < mask.sum() < mask.size
    answer = clients.http(server, model, volume)
    np.testing.assert_array_equal(answer.arrays["MASK"][0], mask)
    np.testing.assert_array_equal(answer.arrays["CONTOUR"][0], contour)


def test_a_file_that_is_no_torchscript_refuses_the_load(server, models, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"not a network")
    name = models.write.torchscript(path, CONFIG.format(batch=1, extra=""))
    with pytest.raises(tritonclient.http.InferenceServerException, match="model.pt"):
        models.load(name)

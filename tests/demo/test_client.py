"""The client against a stand-in for the server that reads and writes the very shared memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from demo import DemoError, client

GRID = (3, 4, 5)


class Server:
    """What the client uses of tritonclient.http.InferenceServerClient."""

    def __init__(self, input_shape=None):
        self.regions, self.input, self.calls, self.input_shape = {}, None, 0, input_shape
        self.mask = np.arange(60).reshape(GRID) % 2
        self.contour = np.arange(60).reshape(GRID) % 3 == 0

    def register_system_shared_memory(self, name, key, nbytes):
        self.regions[name] = (Path("/dev/shm") / key.lstrip("/"), nbytes)

    def unregister_system_shared_memory(self, name):
        del self.regions[name]

    def get_model_metadata(self, model):
        return {"outputs": [{"name": n, "datatype": "FP32", "shape": [-1, 1, *GRID]} for n in ("CONTOUR", "MASK")]}

    def get_inference_statistics(self, model):
        nanoseconds = 5_000_000 + self.calls * (2_000_000 if model == "spleen_seg" else 1_000_000)
        return {"model_stats": [{"inference_stats": {stage: {"ns": nanoseconds} for stage in client.STAGES}}]}

    def infer(self, model, inputs, outputs):
        given = inputs[0]._get_tensor()
        path, nbytes = self.regions[given["parameters"]["shared_memory_region"]]
        assert given["datatype"] == "FP32" and given["parameters"]["shared_memory_byte_size"] == nbytes
        self.input = np.frombuffer(path.read_bytes()[:nbytes], np.float32).reshape(given["shape"]).copy()
        for output in outputs:
            tensor = output._get_tensor()
            path, _ = self.regions[tensor["parameters"]["shared_memory_region"]]
            values = {"MASK": self.mask, "CONTOUR": self.contour}[tensor["name"]].astype(np.float32)
            offset = tensor["parameters"].get("shared_memory_offset", 0)
            assert tensor["parameters"]["shared_memory_byte_size"] == values.nbytes
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                memory[offset : offset + values.nbytes] = values.tobytes()
        self.calls += 1
        shape = self.input_shape or given["shape"][1:]
        parameters = {"crop_start": "[[0,1,2]]", "crop_end": "[[3,4,5]]", "input_shape": f"[{list(shape)}]"}
        return SimpleNamespace(get_response=lambda: {"parameters": parameters})


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
@pytest.mark.parametrize("order", "CF")
def test_the_server_sees_fp32_in_c_order_and_its_outputs_come_back(dtype, order):
    server = Server()
    voxels = np.asarray(np.random.default_rng(0).integers(-900, 900, (6, 7, 8)), dtype=dtype, order=order)[::-1, :, ::-1]
    answer = client._segment(server, voxels)
    np.testing.assert_array_equal(server.input, voxels[None].astype(np.float32))
    np.testing.assert_array_equal(answer.mask, server.mask)
    np.testing.assert_array_equal(answer.contour, server.contour)
    assert answer.crop.start == (0, 1, 2) and answer.crop.end == (3, 4, 5) and answer.crop.input_shape == (6, 7, 8)
    # The difference that this request made, not the totals.
    assert answer.stages_ms["spleen_seg"]["compute_infer"] == 2 and answer.stages_ms["segmentation_3d"]["queue"] == 1
    assert answer.round_trip_s > 0
    assert not server.regions and not list(Path("/dev/shm").glob("spleenseg_demo_*"))


def test_shared_memory_is_given_back_when_the_request_fails(monkeypatch):
    server = Server()
    monkeypatch.setattr(server, "infer", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("refused")))
    with pytest.raises(RuntimeError, match="refused"):
        client._segment(server, np.zeros((2, 3, 4), np.int16))
    assert not server.regions and not list(Path("/dev/shm").glob("spleenseg_demo_*"))


def test_an_answer_about_another_volume_is_refused():
    with pytest.raises(DemoError, match="input_shape: found .9, 9, 9., sent was .2, 3, 4."):
        client._segment(Server(input_shape=(9, 9, 9)), np.zeros((2, 3, 4), np.int16))


def test_too_little_shared_memory_is_said_before_it_is_touched(tmp_path):
    with pytest.raises(DemoError, match="--shm-size"):
        client.need_shared_memory(1 << 60, str(tmp_path))
    client.need_shared_memory(1, str(tmp_path))


def test_no_server_is_one_line():
    with pytest.raises((DemoError, OSError)):
        client.segment("127.0.0.1:9", np.zeros((2, 3, 4), np.int16))

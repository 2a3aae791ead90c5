"""What the stock server does with a request that its client gives up, and what its trace file says of the in-process call."""

from __future__ import annotations

import json
import threading
import time

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
from checks import assert_equals_monai
from models import Repository

NETWORK_S = 4.0
SLOW = f"after({NETWORK_S}, np.concatenate([0.5 - x, x - 0.5], axis=1))"


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=41)[None]


def wait_for(what, within_s: float) -> float:
    """Seconds until what() holds; fails where it does not within the time."""
    start = time.monotonic()
    while not what():
        assert time.monotonic() < start + within_s, "it did not come to pass in time"
        time.sleep(0.02)
    return time.monotonic() - start


def test_a_client_that_gives_up_ends_its_request_while_the_network_works(server, models, volume):
    model = models.spleen(models.child(SLOW))
    before = len(server.text())
    ended = threading.Event()
    given = tritonclient.grpc.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    call = server.grpc().async_infer(model, [given], callback=lambda result, error: ended.set(), request_id="gives-up")
    time.sleep(1.0)  # prepared long since, and with the network
    call.cancel()

    def logged() -> bool:
        return any("gives-up" in line and "cancelled" in line for line in server.text()[before:].splitlines())

    assert wait_for(logged, 3.0) < NETWORK_S - 1.0 - 0.5, "the network was waited for all the same"
    assert ended.wait(10)
    (statistics,) = models.client.get_inference_statistics(model)["model_stats"]
    assert statistics["inference_stats"]["fail"]["count"] == 1
    assert statistics["inference_stats"]["success"]["count"] == 0
    # The instance is free, and the next request is answered as if nothing had been.
    assert_equals_monai(clients.grpc(server, model, volume), volume)


def test_the_call_of_the_network_is_a_child_of_the_requests_trace(start_server, tmp_path, volume):
    repository = Repository(tmp_path / "models")
    child = repository.child()
    model = repository.spleen(child)
    file = tmp_path / "trace.json"
    options = [f"triton,file={file}", "level=TIMESTAMPS", "rate=1", "count=-1"]
    server = start_server(repository.root, *[f"--trace-config={option}" for option in options])
    clients.http(server, model, volume)
    assert server.stop() == 0, server.tail()

    entries = json.loads(file.read_text())
    traces = {entry["model_name"]: entry for entry in entries if "model_name" in entry}
    assert traces[child]["parent_id"] == traces[model]["id"]
    activities = {entry["id"]: [] for entry in entries}
    for entry in entries:
        activities[entry["id"]] += [stamp["name"] for stamp in entry.get("timestamps", [])]
    for name in (model, child):
        found = activities[traces[name]["id"]]
        assert {"REQUEST_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "REQUEST_END"} <= set(found), found


def test_without_tracing_a_request_leaves_no_trace(start_server, tmp_path, volume):
    repository = Repository(tmp_path / "models")
    model = repository.spleen(repository.child())
    file = tmp_path / "trace.json"
    # Sampled out: one request in a thousand is traced.
    options = [f"triton,file={file}", "level=TIMESTAMPS", "rate=1000", "count=-1"]
    server = start_server(repository.root, *[f"--trace-config={option}" for option in options])
    for _ in range(2):
        assert_equals_monai(clients.http(server, model, volume), volume)
    assert server.stop() == 0, server.tail()
    assert not file.exists() or not json.loads(file.read_text() or "[]")

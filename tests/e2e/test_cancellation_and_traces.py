"""What the stock server does with a request that its client gives up, and what its trace file says of the in-process call."""

from __future__ import annotations

import json
import threading

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
from checks import assert_equals_monai
from leaks import wait_for
from models import Repository


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=41)[None]


def test_a_client_that_gives_up_ends_its_request_while_the_network_works(server, models, commanded, volume, tmp_path):
    model, go, ended = models.spleen(commanded), tmp_path / "go", threading.Event()
    command = f"when({str(go)!r}, good(x))"
    given = tritonclient.grpc.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    call = server.grpc().async_infer(model, [given], callback=lambda result, error: ended.set(), request_id=command)
    try:
        wait_for(go.with_suffix(".begun").exists)
        call.cancel()
        # The network works on, and is not waited for.
        wait_for(lambda: any(f"{model}: request '{command}'" in line and "cancelled" in line for line in server.text().splitlines()))
        assert ended.wait(120)
        wait_for(lambda: fails(models.client, model) == 1)
    finally:
        go.touch()
    (statistics,) = models.client.get_inference_statistics(model)["model_stats"]
    assert statistics["inference_stats"]["fail"]["count"] == 1
    assert statistics["inference_stats"]["success"]["count"] == 0
    # The instance is free, and the next request is answered as if nothing had been.
    assert_equals_monai(clients.grpc(server, model, volume), volume)


def fails(client, model: str) -> int:
    (statistics,) = client.get_inference_statistics(model)["model_stats"]
    return statistics["inference_stats"]["fail"].get("count", 0)


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

"""Loading, unloading and stopping while requests run; several instances; what the network is told of the request."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from checks import assert_equals_monai
from models import Repository

SLOW = "after(1.5, np.concatenate([0.5 - x, x - 0.5], axis=1))"


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=40)[None]


class InBackground:
    """One request in a thread of its own."""

    def __init__(self, server, model: str, volume: np.ndarray):
        self.answer = self.error = None
        self.thread = threading.Thread(target=self.run, args=(server, model, volume))
        self.thread.start()

    def run(self, server, model, volume):
        try:
            self.answer = clients.grpc(server, model, volume)
        except Exception as error:  # kept for the test's own thread
            self.error = error

    def result(self) -> clients.Answer:
        self.thread.join(60)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error
        return self.answer


def test_stopping_the_server_lets_requests_finish(start_server, tmp_path, volume):
    repository = Repository(tmp_path)
    model = repository.spleen(repository.child(SLOW, instances=3), {"max_in_flight": "3"})
    server = start_server(tmp_path)
    clients.http(server, model, volume)
    # gRPC clients: Triton keeps answering those that it has begun with.
    running = [InBackground(server, model, volume) for _ in range(3)]
    time.sleep(0.7)
    clients_of_server, server.clients = server.clients, []
    for client in clients_of_server:
        if isinstance(client, tritonclient.http.InferenceServerClient):
            client.close()
    assert server.stop(within_s=25) == 0, server.tail()
    for request in running:
        assert_equals_monai(request.result(), volume)


def test_unloading_lets_requests_finish(server, models, volume):
    model = models.spleen(models.child(SLOW))
    clients.http(server, model, volume)
    running = InBackground(server, model, volume)
    time.sleep(0.5)
    models.unload(model)
    assert_equals_monai(running.result(), volume)


def test_loading_again_and_again(server, models, volume):
    name = models.write.spleen(models.two_classes)
    for _ in range(5):
        models.load(name)
        assert_equals_monai(clients.http(server, name, volume), volume)
        assert threads_of(server, name), "an instance has threads of its own"
        models.unload(name)
    # Unloading goes on after the call has returned.
    deadline = time.monotonic() + 20
    while left := threads_of(server, name) + threads_of(server, "spleenseg-"):
        assert time.monotonic() < deadline, f"threads are left: {left}"
        time.sleep(0.05)


def threads_of(server, prefix: str) -> list[str]:
    """The names of the server's threads that begin so; Linux keeps 15 characters."""
    names = [path.read_text().strip() for path in Path(f"/proc/{server.process.pid}/task").glob("*/comm")]
    return [name for name in names if name.startswith(prefix[:15])]


def test_several_instances_give_the_same(server, models, volume):
    child = models.child(instances=2)
    model = models.write.spleen(child)
    path = models.write.root / model / "config.pbtxt"
    path.write_text(path.read_text().replace("count: 1", "count: 4"))
    models.load(model)
    for request in [InBackground(server, model, volume) for _ in range(12)]:
        assert_equals_monai(request.result(), volume)


def test_no_instance_group_means_cpu(server, models, volume):
    model = models.write.spleen(models.two_classes)
    path = models.write.root / model / "config.pbtxt"
    text = path.read_text()
    start = text.index("instance_group")
    path.write_text(text[:start] + text[text.index("]\n", start) + 2 :])
    models.load(model)
    assert_equals_monai(clients.http(server, model, volume), volume)
    assert server.http().get_model_config(model)["instance_group"][0]["kind"] == "KIND_CPU"


def test_the_network_is_told_the_request_id(server, models, volume):
    model = models.spleen(models.child("fail('id ' + request.request_id())"))
    with pytest.raises(tritonclient.http.InferenceServerException, match="id case-42"):
        clients.grpc(server, model, volume, request_id="case-42")


def test_requests_one_after_another_do_not_grow_the_server(server, models, volume):
    model = models.pair(max_batch_size=1)
    status = f"/proc/{server.process.pid}/status"

    def resident_kib() -> int:
        with open(status) as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    client = server.http()
    given = tritonclient.http.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    for _ in range(50):
        client.infer(model, [given])
    before = resident_kib()
    for _ in range(300):
        client.infer(model, [given])
    # 300 requests of 0.2 MB of input: one leaked tensor each would be 60 MB and more.
    assert resident_kib() - before < 16 * 1024

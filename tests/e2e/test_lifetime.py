"""Loading, unloading and stopping while requests run; several instances; what the network is told of the request."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from checks import assert_equals_monai
from leaks import threads, wait_for, waiting
from models import CHILD, TWO_CLASSES, Repository


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=40)[None]


class InBackground:
    """One request in a thread of its own."""

    def __init__(self, server, model: str, volume: np.ndarray, **options):
        self.answer = self.error = None
        self.thread = threading.Thread(target=self.run, args=(server, model, volume, options))
        self.thread.start()

    def run(self, server, model, volume, options):
        try:
            self.answer = clients.grpc(server, model, volume, **options)
        except Exception as error:  # kept for the test's own thread
            self.error = error

    def result(self) -> clients.Answer:
        self.thread.join(120)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error
        return self.answer


def at_the_network(server, model: str, volume: np.ndarray, go: list[Path]) -> list[InBackground]:
    """Requests that the network has begun with. It answers each once its file is there."""
    running = [InBackground(server, model, volume, request_id=f"when({str(path)!r}, good(x))") for path in go]
    wait_for(lambda: all(path.with_suffix(".begun").exists() for path in go))
    return running


def test_stopping_the_server_lets_requests_finish(start_server, tmp_path, volume):
    repository = Repository(tmp_path / "models")
    model = repository.spleen(repository.commanded(instances=3), {"max_in_flight": "3"})
    server = start_server(repository.root)
    go = [tmp_path / f"go{number}" for number in range(3)]
    # gRPC clients: Triton keeps answering those that it has begun with.
    running = at_the_network(server, model, volume, go)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "in-flight requests" in server.text() or "Signal (15)" in server.text())
    for path in go:
        path.touch()
    for request in running:
        assert_equals_monai(request.result(), volume)
    assert server.stop() == 0, server.tail()


def test_unloading_lets_requests_finish(server, models, commanded, volume, tmp_path):
    model, go = models.spleen(commanded), tmp_path / "go"
    (running,) = at_the_network(server, model, volume, [go])
    models.unload(model)
    wait_for(lambda: not models.client.is_model_ready(model))
    go.touch()
    assert_equals_monai(running.result(), volume)


def test_loading_again_and_again(server, models, volume):
    name = models.write.spleen(models.two_classes)
    for _ in range(5):
        models.load(name)
        assert_equals_monai(clients.http(server, name, volume), volume)
        assert threads_of(server, name), "an instance has threads of its own"
        models.unload(name)
    # Unloading goes on after the call has returned.
    wait_for(lambda: not threads_of(server, name) + threads_of(server, "spleenseg-"), why=lambda: str(threads(server.process.pid)))


def threads_of(server, prefix: str) -> list[str]:
    """The names of the server's threads that begin so; Linux keeps 15 characters."""
    return [name for name in threads(server.process.pid) if name.startswith(prefix[:15])]


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


@pytest.mark.parametrize("kind", ["KIND_CPU", "KIND_AUTO"])
def test_without_a_gpu_auto_is_cpu(server, models, volume, kind):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    model = models.write.spleen(models.two_classes)
    path = models.write.root / model / "config.pbtxt"
    path.write_text(path.read_text().replace("kind: KIND_CPU", f"kind: {kind}"))
    models.load(model)
    assert_equals_monai(clients.http(server, model, volume), volume)
    assert server.http().get_model_config(model)["instance_group"][0]["kind"] == "KIND_CPU"


def test_the_network_is_told_the_request_id(server, models, volume):
    model = models.spleen(models.child("fail('id ' + request.request_id())"))
    with pytest.raises(tritonclient.http.InferenceServerException, match="id case-42"):
        clients.grpc(server, model, volume, request_id="case-42")


def test_the_network_is_told_correlation_id_and_timeout(server, models, volume):
    model = models.spleen(models.child("fail(f'correlation {request.correlation_id()} timeout {request.timeout()}')"))
    with pytest.raises(tritonclient.http.InferenceServerException, match="correlation 9 timeout 7000000"):
        clients.grpc(server, model, volume, sequence_id=9, sequence_start=True, timeout=7_000_000)


def test_another_version_of_the_network_serves_without_a_reload(server, models, volume):
    """Nothing of the network is kept between requests: the next one goes to the version that is there then."""
    child = models.child("fail('the first version')")
    model = models.spleen(child)
    with pytest.raises(tritonclient.http.InferenceServerException, match="the first version"):
        clients.grpc(server, model, volume)
    folder = models.write.root / child
    (folder / "2").mkdir()
    source = CHILD.format(input="INPUT__0", output="OUTPUT__0", scores=TWO_CLASSES)
    (folder / "2" / "model.py").write_text(source)
    models.client.load_model(child)
    assert_equals_monai(clients.grpc(server, model, volume), volume)


def test_a_network_that_still_loads_is_unavailable(server, models, volume, tmp_path):
    child, begun, go = models.write.child(), tmp_path / "begun", tmp_path / "go"
    with (models.write.root / child / "1" / "model.py").open("a") as source:
        source.write(f"\n\nopen({str(begun)!r}, 'w').close()\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\n")
    model = models.spleen(child)
    # By gRPC: an HTTP client of tritonclient belongs to one thread.
    loading = threading.Thread(target=server.grpc().load_model, args=(child,))
    loading.start()
    models.loaded.append(child)
    try:
        wait_for(begun.exists)
        with pytest.raises(tritonclient.http.InferenceServerException, match=child) as refused:
            clients.grpc(server, model, volume)
    finally:
        go.touch()
        loading.join(60)
    assert refused.value.status() == "StatusCode.UNAVAILABLE"
    assert_equals_monai(clients.grpc(server, model, volume), volume)


RESOURCE = 'rate_limiter { resources [ { name: "R1" count: 1 } ] }'


def test_a_resource_that_network_and_caller_both_need_ends_with_the_timeout(start_server, tmp_path, volume):
    """The rate limiter's dead end: a caller that waits for a place keeps what the network needs. Nobody waits for ever."""
    repository = Repository(tmp_path / "models")
    child = repository.commanded()
    model = repository.spleen(child, {"max_in_flight": "1", "segmentation_timeout_s": "3"})
    for name in (child, model):
        path = repository.root / name / "config.pbtxt"
        text = path.read_text()
        path.write_text(re.sub(r"instance_group \[\s*{", f"instance_group [ {{ {RESOURCE}", text))
        assert RESOURCE in path.read_text()
    server = start_server(repository.root, "--rate-limit=execution_count")
    assert_equals_monai(clients.grpc(server, model, volume), volume)
    # The network has the resource until two requests wait for it: the second gets it when the first is on its way to the network.
    go = tmp_path / "go"
    holding = InBackground(server, child, volume[None], name="INPUT__0", request_id=f"when({str(go)!r}, good(x))")
    wait_for(go.with_suffix(".begun").exists)
    requests = [InBackground(server, model, volume) for _ in range(2)]
    wait_for(lambda: waiting(server) == 2)
    go.touch()
    holding.result()
    outcomes = []
    for request in requests:
        try:
            assert_equals_monai(request.result(), volume)
            outcomes.append("answered")
        except tritonclient.http.InferenceServerException as error:
            assert child in error.message() and "segmentation_timeout_s" in error.message(), error.message()
            outcomes.append("timeout")
    assert sorted(outcomes) == ["answered", "timeout"]
    assert_equals_monai(clients.grpc(server, model, volume), volume)
    assert server.stop() == 0, server.tail()


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

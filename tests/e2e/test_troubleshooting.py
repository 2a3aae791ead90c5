"""docs/troubleshooting.md: every message on it is brought about, and reads as the page says."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import clients
import grpc
import numpy as np
import pytest
import reference
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shared_memory
from leaks import wait_for, waiting
from models import ROOT, Repository
from triton import Triton
from tritonclient.grpc import service_pb2, service_pb2_grpc

Failed = tritonclient.http.InferenceServerException
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = [block.strip() for block in re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
SLOW = "after(2, np.concatenate([0.5 - x, x - 0.5], axis=1))"
REGION_BYTES = 1 << 20


def pattern(message: str) -> re.Pattern:
    return re.compile(".+".join(map(re.escape, message.split("…"))), re.DOTALL)


class Symptoms:
    """Each method does what leads to one message and returns what the user sees."""

    def __init__(self, server: Triton, models, start_server, tmp_path: Path, backends: Path):
        self.server, self.models, self.start_server, self.tmp_path, self.backends = server, models, start_server, tmp_path, backends
        self.http = models.client
        self.volume = reference.blobs((45, 40, 30), seed=20)[None]

    def refused(self, call: Callable) -> str:
        with pytest.raises(Exception) as error:  # noqa: PT011: the text is what is compared
            call()
        return str(error.value)

    def given(self, volume: np.ndarray | None = None) -> tritonclient.http.InferInput:
        volume = self.volume if volume is None else volume
        given = tritonclient.http.InferInput("INPUT0", list(volume.shape), {"f4": "FP32", "f8": "FP64"}[volume.dtype.str[1:]])
        given.set_data_from_numpy(volume)
        return given

    def request(self, model: str, volume: np.ndarray | None = None, **options) -> str:
        return self.refused(lambda: self.http.infer(model, [self.given(volume)], **options))

    def load(self, parameters: dict | None = None, change: tuple[str, str] = ("", "")) -> str:
        name = self.models.write.spleen(self.models.two_classes, parameters)
        config = self.server.repository / name / "config.pbtxt"
        config.write_text(config.read_text().replace(*change))
        return self.refused(lambda: self.http.load_model(name))

    def ending(self, *arguments: str, repository: Path | None = None) -> str:
        """The log of a server that does not start."""
        log = self.tmp_path / "log"
        with Triton(self.tmp_path, self.backends, log, "--model-control-mode=explicit") as other:
            pass
        other.command = [a for a in other.command if not a.startswith(tuple(x.partition("=")[0] + "=" for x in arguments))]
        other.command += arguments
        if repository:
            other.command = [f"--model-repository={repository}" if a.startswith("--model-repository") else a for a in other.command]
        with pytest.raises(RuntimeError):
            other.start()
        return other.text()

    @contextmanager
    def region(self, *, registered: bool = True) -> Iterator[str]:
        """A shared-memory region of this machine, and of the server where it is registered."""
        key = f"/spleenseg_troubles_{uuid.uuid4().hex[:12]}"
        handle = shared_memory.create_shared_memory_region("troubles", key, REGION_BYTES)
        try:
            shared_memory.set_shared_memory_region(handle, [self.volume])
            if registered:
                self.http.register_system_shared_memory("troubles", key, REGION_BYTES)
            yield key
        finally:
            if registered:
                self.http.unregister_system_shared_memory("troubles")
            shared_memory.destroy_shared_memory_region(handle)

    def in_region(self, model: str, size: int, offset: int = 0) -> str:
        given = tritonclient.http.InferInput("INPUT0", list(self.volume.shape), "FP32")
        given.set_shared_memory("troubles", size, offset)
        return self.refused(lambda: self.http.infer(model, [given]))

    def queue(self, policy: str) -> str:
        """What is said of six requests: one is at the network, one waits for a place, and four are in the queue or refused."""
        network, go = self.models.load(self.models.write.commanded()), self.tmp_path / "go"
        extra = f"\ndynamic_batching {{ default_queue_policy {{ {policy} }} }}\n"
        model = self.models.spleen(network, {"max_in_flight": "1"}, extra=extra)
        with ThreadPoolExecutor(6) as pool:
            running = [pool.submit(clients.http, self.server, model, self.volume, request_id=f"when({str(go)!r}, good(x))") for _ in range(6)]
            try:
                wait_for(lambda: waiting(self.server) + sum(request.done() for request in running) == 4)
                time.sleep(0.1)  # longer than a request may wait
            finally:
                go.touch()
            return "\n".join(str(request.exception()) for request in as_completed(running, timeout=120) if request.exception())

    def restricted(self) -> Triton:
        apis = "shared-memory,model-repository,logging,trace:admin-key=secret"
        return self.start_server(
            self.tmp_path, "--model-control-mode=explicit", f"--http-restricted-api={apis}", f"--grpc-restricted-protocol={apis}"
        )

    def plain_grpc(self, server: Triton, model: str, shape: list[int], data: bytes) -> str:
        """A client made from the protocol's stubs alone."""
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=[("grpc.max_send_message_length", -1)])
        request = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[data])
        request.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
        with channel:
            return self.refused(lambda: service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request))

    # The page, from top to bottom.

    def no_backend(self):
        self.models.write.write("lost", 'name: "lost"\nbackend: "spleensig"\nmax_batch_size: 1\n')
        return self.refused(lambda: self.http.load_model("lost")).replace("spleensig", "spleenseg")

    def unknown_parameter(self):
        return self.load({"a_mim": "1"})

    def wrong_value(self):
        return self.load({"a_min": "soft tissue"})

    def wrong_dims(self):
        return self.load({"spatial_size": "32"})

    def no_gpu(self):
        return self.load(change=("KIND_CPU", "KIND_GPU"))

    def no_such_gpu(self):
        return self.load(change=("kind: KIND_CPU", "kind: KIND_GPU gpus: [ 0 ]"))

    def no_version(self):
        name = self.models.write.spleen(self.models.two_classes)
        (self.server.repository / name / "1").rmdir()
        said = self.refused(lambda: self.http.load_model(name))
        # What the page advises.
        (self.server.repository / name / "1").mkdir()
        (self.server.repository / name / "1" / ".gitkeep").touch()
        self.models.load(name)
        return said

    def port_in_use(self):
        return self.ending(f"--http-port={self.server.http_port}")

    def no_repository(self):
        return self.ending(repository=self.tmp_path / "nowhere")

    def no_driver_for_pinned_memory(self):
        return self.server.text()

    def no_driver(self):
        return self.server.text()

    def no_driver_for_metrics(self):
        return self.server.text()

    def no_dcgm(self):
        return self.server.text()

    def no_foreground(self):
        return self.request(self.models.pair(), np.full_like(self.volume, -1000))

    def no_network(self):
        return self.request(self.models.spleen("nowhere"))

    def slow_network(self):
        return self.request(self.models.spleen(self.models.child(SLOW), {"segmentation_timeout_s": "0.2"}))

    def failing_network(self):
        return self.request(self.models.spleen(self.models.child('fail("out of order")')))

    def too_many_voxels(self):
        return self.request(self.models.pair({"max_voxels": "100"}))

    def too_many_volumes(self):
        child = self.models.child(dims=(-1, -1, -1, -1, -1), max_batch_size=0)
        return self.request(self.models.spleen(child, {"max_volumes": "1"}, max_batch_size=0), np.concatenate([self.volume] * 2))

    def wrong_type(self):
        return self.request(self.models.pair(), self.volume.astype(np.float64))

    def no_batch_axis(self):
        return self.request(self.models.pair(), self.volume[0])

    def wrong_bytes(self):
        with self.region():
            return self.in_region(self.models.pair(), self.volume.nbytes - 4)

    def wrong_output(self):
        return self.request(self.models.pair(), outputs=[tritonclient.http.InferRequestedOutput("SPLEEN")])

    def wrong_model(self):
        return self.request("spleen_sag")

    def full_queue(self):
        return self.queue("max_queue_size: 1")

    def expired_queue(self):
        return self.queue("default_timeout_microseconds: 50000")

    def restricted_http(self):
        return self.refused(lambda: self.restricted().http().register_system_shared_memory("a", "/a", 1))

    def restricted_grpc(self):
        client = self.restricted().grpc()
        # SECURITY.md names the header; with it the interface is open.
        client.get_system_shared_memory_status(headers={"triton-grpc-protocol-admin-key": "secret"})
        return self.refused(lambda: client.register_system_shared_memory("a", "/a", 1))

    def no_region(self):
        return self.refused(lambda: self.http.register_system_shared_memory("a", "/nothing_is_here", 1))

    def small_region(self):
        with self.region(registered=False) as key:
            return self.refused(lambda: self.http.register_system_shared_memory("troubles", key, 2 * REGION_BYTES))

    def region_twice(self):
        with self.region() as key:
            return self.refused(lambda: self.http.register_system_shared_memory("troubles", key, REGION_BYTES))

    def beyond_the_region(self):
        with self.region():
            return self.in_region(self.models.pair(), self.volume.nbytes, REGION_BYTES - 8)

    def unknown_region(self):
        return self.in_region(self.models.pair(), self.volume.nbytes)

    def small_output(self):
        output = tritonclient.http.InferRequestedOutput("MASK")
        output.set_shared_memory("troubles", 100)
        with self.region():
            return self.request(self.models.pair(), outputs=[output])

    def impatient_http(self):
        model = self.models.spleen(self.models.child(SLOW))
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.server.http_port}", network_timeout=0.5) as client:
            return self.refused(lambda: client.infer(model, [self.given()]))

    def impatient_grpc(self):
        model = self.models.spleen(self.models.child(SLOW))
        given = tritonclient.grpc.InferInput("INPUT0", list(self.volume.shape), "FP32")
        given.set_data_from_numpy(self.volume)
        return self.refused(lambda: self.server.grpc().infer(model, [given], client_timeout=0.5))

    def large_answer(self):
        """On a server of its own, killed at the end: Triton's gRPC front end often keeps an answer that its client refused, and
        with it the model, whatever its backend."""
        write = Repository(self.tmp_path)
        model = write.spleen(write.child(), size=(120, 120, 100))
        other = self.start_server(self.tmp_path)
        try:
            return self.plain_grpc(other, model, list(self.volume.shape), self.volume.tobytes())
        finally:
            other.kill()

    def large_request_grpc(self):
        slices = 2100
        return self.plain_grpc(self.server, self.models.pair(), [1, 512, 512, slices], bytes(512 * 512 * slices * 4))

    def large_request_http(self):
        """The server judges by the headers, but reads the body first."""
        model, size = self.models.pair(), 512 * 512 * 2100 * 4
        header = {"name": "INPUT0", "shape": [1, 512, 512, 2100], "datatype": "FP32", "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [header]}).encode()
        lines = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(head) + size}\r\nInference-Header-Content-Length: {len(head)}\r\n\r\n"
        piece = bytes(1 << 22)
        with socket.create_connection(("127.0.0.1", self.server.http_port), timeout=200) as connection:
            connection.sendall(lines.encode() + head)
            for _ in range(size // len(piece)):
                connection.sendall(piece)
            connection.sendall(bytes(size % len(piece)))
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            return reply.read().decode()

    def open_connection(self):
        Repository(self.tmp_path).spleen("nowhere")
        other = self.start_server(self.tmp_path, "--exit-timeout-secs=3")
        with socket.create_connection(("127.0.0.1", other.http_port)) as connection:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b" 200 " in connection.recv(4096)
            other.process.send_signal(signal.SIGINT)
            wait_for(lambda: "HTTP service connections" in other.text())
            other.process.send_signal(signal.SIGINT)
            assert other.process.wait(timeout=60) == 1
        assert "Exit timeout expired" in other.text()
        return other.text()


NAMES = list(vars(Symptoms))
NAMES = NAMES[NAMES.index("no_backend") : NAMES.index("open_connection") + 1]

# Client and server in one machine hold such a request several times.
LARGE, LARGE_KB = ("large_request_grpc", "large_request_http"), 12_000_000
WITHOUT_A_GPU = ("no_gpu", "no_such_gpu", "no_driver_for_pinned_memory", "no_driver", "no_driver_for_metrics", "no_dcgm")


def test_the_page_and_the_symptoms_go_together():
    assert len(MESSAGES) == len(NAMES), "one symptom for each message, in the page's order"
    for message in MESSAGES:
        assert len(message.replace("…", "").strip()) >= 9, f"too vague to be found in a log: {message}"


@pytest.mark.parametrize(("name", "message"), list(zip(NAMES, MESSAGES, strict=False)), ids=NAMES)
def test_message(server, models, start_server, tmp_path, backends, name, message):
    if name in WITHOUT_A_GPU and Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    available = int(re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE).group(1))
    if name in LARGE and available < LARGE_KB:
        pytest.skip(f"a request above 2 GB needs {LARGE_KB} kB of memory here, {available} are available")
    seen = getattr(Symptoms(server, models, start_server, tmp_path, backends), name)()
    # Triton's log writes quotes with a backslash.
    assert pattern(message).search(seen.replace('\\"', '"')), seen[-3000:]
    assert server.alive()

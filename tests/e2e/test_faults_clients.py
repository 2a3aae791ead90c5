"""Clients that leave, stall or give up, at any point of a request: nobody else notices, and nothing of theirs stays with the server."""

from __future__ import annotations

import asyncio
import queue
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from checks import TRIED, Expected
from leaks import wait_for, waiting

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=82)[None]


@pytest.fixture(scope="module")
def good(volume) -> Expected:
    return Expected(volume)


@pytest.fixture
def model(server, models, commanded, volume, good) -> Iterator[str]:
    """Its network does what a request's id says. After the test it answers as before."""
    name = models.spleen(commanded)
    yield name
    good.assert_is(clients.http(server, name, volume))
    good.assert_is(clients.grpc(server, name, volume))


def whole_request(model: str, volume: np.ndarray, request_id: str = "") -> bytes:
    given = tritonclient.http.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    body, size = tritonclient.http.InferenceServerClient.generate_request_body([given], request_id=request_id)
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: {size}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def leave(connection: socket.socket, abruptly: bool) -> None:
    TRIED["clients that left"] += 1
    if abruptly:  # with RST in place of FIN
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def counts(server, model: str) -> tuple[int, int]:
    (statistics,) = server.http().get_inference_statistics(model)["model_stats"]
    return tuple(statistics["inference_stats"][outcome].get("count", 0) for outcome in ("success", "fail"))


@pytest.mark.parametrize("abruptly", [False, True], ids=["closed", "reset"])
def test_connections_that_end_in_the_midst_of_a_request(server, model, volume, good, abruptly):
    data = whole_request(model, volume)
    stalled = socket.create_connection(("127.0.0.1", server.http_port), timeout=60)
    stalled.sendall(data[: len(data) // 2])  # and no more while the others come and go
    for length in (0, 1, 20, 150, 300, 1000, len(data) // 2, len(data) - 1):
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
            connection.sendall(data[:length])
            leave(connection, abruptly)
    good.assert_is(clients.http(server, model, volume))
    assert counts(server, model) == (1, 0), "none of them was a request"
    stalled.sendall(data[len(data) // 2 :])
    assert b" 200 " in stalled.recv(100)
    leave(stalled, abruptly)


@pytest.mark.parametrize("abruptly", [False, True], ids=["closed", "reset"])
def test_connections_that_end_while_their_request_is_worked_on(server, model, volume, tmp_path, abruptly):
    """Over HTTP Triton does not tell: the request runs to its end, and the answer is thrown away."""
    go = [tmp_path / f"go{n}" for n in range(2)]
    for path in go:
        connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=60)
        connection.sendall(whole_request(model, volume, f"when({str(path)!r}, good(x))"))
        wait_for(path.with_suffix(".begun").exists)
        leave(connection, abruptly)
    for path in go:
        path.touch()
    wait_for(lambda: sum(counts(server, model)) == 2)


def grpc_input(volume: np.ndarray) -> tritonclient.grpc.InferInput:
    given = tritonclient.grpc.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    return given


def test_grpc_clients_that_vanish_cancel_their_requests(server, model, volume, tmp_path):
    """The whole channel is closed, with one request at the network and others behind it: all end, though the network hangs."""
    go, ended = tmp_path / "go", queue.Queue()
    client = server.grpc()
    try:
        for n in range(5):
            command = f"when({str(go)!r}, good(x))"
            client.async_infer(model, [grpc_input(volume)], lambda result, error: ended.put(error), request_id=command)
        wait_for(go.with_suffix(".begun").exists)
        # Two are at the network's two instances, one waits for a place.
        wait_for(lambda: waiting(server) == 2)
        client.close()
        TRIED["clients that left"] += 5
        assert all(ended.get(timeout=120) for _ in range(5))
        wait_for(lambda: sum(counts(server, model)) == 5 and waiting(server) == 0)
        assert counts(server, model) == (0, 5)
    finally:
        go.touch()


def test_cancelling_and_timeouts_in_asyncio(server, model, volume, good, tmp_path):

    def command(go: Path) -> str:
        return f"when({str(go)!r}, good(x))"

    async def at_the_network(call, go: Path) -> asyncio.Task:
        task = asyncio.create_task(call)
        while not task.done() and not go.with_suffix(".begun").exists():
            await asyncio.sleep(0.01)
        return task

    async def grpc(go: Path) -> None:
        async with tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            task = await at_the_network(client.infer(model, [grpc_input(volume)], request_id=command(go)), go)
            beside = client.infer(model, [grpc_input(volume)])
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            good.assert_is(clients.grpc_answer(await beside))
        go.touch()

    async def grpc_in_time(go: Path, seconds: float) -> bool:
        """Whether the network had begun by then."""
        async with tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            with pytest.raises(tritonclient.grpc.InferenceServerException, match="Deadline Exceeded"):
                await client.infer(model, [grpc_input(volume)], request_id=command(go), client_timeout=seconds)
        begun = go.with_suffix(".begun").exists()
        go.touch()
        return begun

    async def http(go: Path) -> None:
        async with tritonclient.http.aio.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
            given = tritonclient.http.InferInput("INPUT0", list(volume.shape), "FP32")
            given.set_data_from_numpy(volume)
            task = await at_the_network(client.infer(model, [given], request_id=command(go)), go)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(task, 0.01)
        go.touch()

    asyncio.run(grpc(tmp_path / "cancelled"))
    # A deadline that was over before the network had the request shows nothing.
    tries = (0.5, 2, 8, 32)
    tried = next(n for n, seconds in enumerate(tries, 1) if asyncio.run(grpc_in_time(tmp_path / f"late{seconds}", seconds)))
    asyncio.run(http(tmp_path / "closed"))
    TRIED["clients that left"] += 2 + tried
    # Those that gave up over gRPC; the last one's network answered after its client had left.
    wait_for(lambda: counts(server, model)[0] == 2 and 2 <= counts(server, model)[1] <= 1 + tried, why=lambda: str(counts(server, model)))


def test_what_is_queued_when_its_client_leaves_is_never_begun(server, models, commanded, volume, good, tmp_path):
    """One request at a time; those behind it are cancelled before their turn, and the network is not asked for them."""
    model, control = models.spleen(commanded, {"max_in_flight": "1"}), server.http()
    go = tmp_path / "go"
    first = server.grpc()
    came = queue.Queue()
    first.async_infer(model, [grpc_input(volume)], lambda result, error: came.put((result, error)), request_id=f"when({str(go)!r}, good(x))")
    wait_for(go.with_suffix(".begun").exists)
    touched, ended = tmp_path / "touched", queue.Queue()
    calls = [
        first.async_infer(model, [grpc_input(volume)], lambda result, error: ended.put(error), request_id=f"when({str(touched)!r}, good(x))")
        for _ in range(4)
    ]
    # The server has them all: one waits for a place, three are in the queue.
    wait_for(lambda: waiting(server) == 3)
    before = len(server.text())
    control.update_log_settings({"log_verbose_level": 1})
    try:
        for call in calls:
            call.cancel()
            TRIED["clients that left"] += 1
        assert all(ended.get(timeout=120) for _ in calls)
        # And it has been told: a client has its error before the server knows.
        wait_for(lambda: server.text()[before:].count("Issuing cancellation") >= len(calls))
    finally:
        control.update_log_settings({"log_verbose_level": 0})
        go.touch()
    result, error = came.get(timeout=120)
    assert error is None
    good.assert_is(clients.grpc_answer(result))
    good.assert_is(clients.grpc(server, model, volume))
    assert not touched.with_suffix(".begun").exists()
    touched.touch()

"""The soak's clients: each has one protocol, keeps its connection, and takes requests from a common list."""

from __future__ import annotations

import asyncio
import queue
import time
import uuid
from collections.abc import Callable, Iterator

import clients
import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from clients import Answer
from soak_cases import CANCELLED, IN_SHARED_MEMORY, WRONG, Request
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

shm = clients.shm
CANARY = 0xA5
REGION_BYTES = 1 << 20
CANARIES = np.full(REGION_BYTES, CANARY, np.uint8)
TIMEOUT_S = 300

# What came of a request: the answer with the id that it carried, or the error.
Outcome = tuple[str, Answer] | InferenceServerException | None
Tell = Callable[[Request, Outcome], None]


def inputs(kind, request: Request) -> list:
    given = []
    for name, array in request.tensors.items():
        given.append(kind.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        given[-1].set_data_from_numpy(array)
    return given


def outputs(kind, request: Request) -> list:
    return [kind.InferRequestedOutput(name) for name in request.outputs]


def http_outcome(result, read: bool = True) -> Outcome:
    return result.get_response()["id"], clients.http_answer(result, read)


def grpc_outcome(result, read: bool = True) -> Outcome:
    return result.get_response().id, clients.grpc_answer(result, read)


class Client:
    """One that waits for each answer. Its bad requests go through the kinds that its protocol has, in turn."""

    protocol = ""
    kinds = WRONG

    def __init__(self, http_port: int, grpc_port: int):
        self.ports = http_port, grpc_port

    def run(self, requests: Iterator[Request], tell: Tell) -> None:
        self.open()
        try:
            for request in requests:
                try:
                    outcome = self.send(request)
                except InferenceServerException as error:
                    outcome = error
                tell(request, outcome)
        finally:
            self.close()

    def open(self) -> None:
        raise NotImplementedError

    def send(self, request: Request) -> Outcome:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close()


def open_http(port: int):
    return tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}", connection_timeout=TIMEOUT_S, network_timeout=TIMEOUT_S)


class Http(Client):
    protocol = "HTTP"

    def open(self) -> None:
        self.client = open_http(self.ports[0])

    def send(self, request: Request) -> Outcome:
        kind = tritonclient.http
        return http_outcome(self.client.infer(request.model.name, inputs(kind, request), outputs=outputs(kind, request), request_id=request.id))


class Grpc(Client):
    protocol = "gRPC"
    kinds = WRONG | CANCELLED

    def open(self) -> None:
        self.client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.ports[1]}")

    def send(self, request: Request) -> Outcome:
        kind, ended = tritonclient.grpc, queue.Queue()
        call = self.client.async_infer(
            request.model.name,
            inputs(kind, request),
            callback=lambda result, error: ended.put((result, error)),
            outputs=outputs(kind, request),
            request_id=request.id,
            client_timeout=TIMEOUT_S,
        )
        if request.cancelled:
            time.sleep(0.1)
            call.cancel()
        result, error = ended.get(timeout=TIMEOUT_S)
        if error is not None:
            raise error
        return grpc_outcome(result)


class SharedMemory(Client):
    """Input and outputs in two regions of its own, in which canaries follow what a request may write."""

    # What holds nothing cannot lie in a region: the server looks no further.
    kinds = {kind: make for kind, make in WRONG.items() if kind != "an empty axis"} | IN_SHARED_MEMORY
    kind, outcome, options = tritonclient.http, staticmethod(http_outcome), {}

    def open(self) -> None:
        self.client = self.connect()
        self.regions = {}
        for way in ("in", "out"):
            name = f"spleenseg_{way}_{uuid.uuid4().hex[:12]}"
            self.regions[way] = name, shm.create_shared_memory_region(name, f"/{name}", REGION_BYTES)
            self.client.register_system_shared_memory(name, f"/{name}", REGION_BYTES)

    def connect(self):
        return open_http(self.ports[0])

    def send(self, request: Request) -> Outcome:
        kind, (region_in, handle_in), (region_out, handle_out) = self.kind, self.regions["in"], self.regions["out"]
        given = []
        for name, array in request.tensors.items():
            shm.set_shared_memory_region(handle_in, [array])
            given.append(kind.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
            given[-1].set_shared_memory(region_in, array.nbytes + request.input_bytes)
        wanted, places, end = [], {}, 0
        # A bad request has no shape to go by.
        shape_of = request.volume if request.tensors and request.volume.ndim == 4 else np.empty((1, 1, 1, 1))
        for name in request.outputs:
            shape = request.model.output_shape(name, shape_of)
            size = int(np.prod(shape)) * np.dtype(request.model.output_dtype).itemsize
            wanted.append(kind.InferRequestedOutput(name))
            wanted[-1].set_shared_memory(region_out, size + request.output_bytes, end)
            places[name] = shape, end
            end += size
        shm.set_shared_memory_region(handle_out, [CANARIES])
        try:
            result = self.client.infer(request.model.name, given, outputs=wanted, request_id=request.id, **self.options)
        finally:
            if not (shm.get_contents_as_numpy(handle_out, np.uint8, CANARIES.shape)[end:] == CANARY).all():
                raise AssertionError(f"{request.id}: the server wrote beyond the {end} bytes of the outputs")
        returned, answer = self.outcome(result, read=False)
        answer.arrays = {
            name: np.array(shm.get_contents_as_numpy(handle_out, request.model.output_dtype, shape, offset=place))
            for name, (shape, place) in places.items()
        }
        return returned, answer

    def close(self) -> None:
        for name, handle in self.regions.values():
            self.client.unregister_system_shared_memory(name)
            shm.destroy_shared_memory_region(handle)
        self.client.close()


class HttpSharedMemory(SharedMemory):
    protocol = "HTTP, shared memory"


class GrpcSharedMemory(SharedMemory):
    protocol = "gRPC, shared memory"
    kind, outcome, options = tritonclient.grpc, staticmethod(grpc_outcome), {"client_timeout": TIMEOUT_S}

    def connect(self):
        return tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.ports[1]}")


class Asyncio(Client):
    """Several requests at once on one connection."""

    kinds = WRONG | CANCELLED
    at_once = 3

    def run(self, requests: Iterator[Request], tell: Tell) -> None:
        asyncio.run(self.run_all(requests, tell))

    async def run_all(self, requests, tell) -> None:
        async with self.connect() as client:
            await asyncio.gather(*(self.run_one(client, requests, tell) for _ in range(self.at_once)))

    async def run_one(self, client, requests, tell) -> None:
        for request in requests:
            call = asyncio.ensure_future(self.infer(client, request))
            if request.cancelled:
                await asyncio.sleep(0.1)
                call.cancel()
            try:
                outcome = await call
            except InferenceServerException as error:
                outcome = error
            except asyncio.CancelledError:
                outcome = None
            tell(request, outcome)

    async def infer(self, client, request: Request) -> Outcome:
        kind = self.kind
        given, wanted = inputs(kind, request), outputs(kind, request)
        return self.outcome(await client.infer(request.model.name, given, outputs=wanted, request_id=request.id, **self.options))


class HttpAsyncio(Asyncio):
    """Cancelling closes the connection."""

    protocol = "HTTP, asyncio"
    kind, outcome, options = tritonclient.http, staticmethod(http_outcome), {}

    def connect(self):
        return tritonclient.http.aio.InferenceServerClient(f"127.0.0.1:{self.ports[0]}", conn_timeout=TIMEOUT_S)


class GrpcAsyncio(Asyncio):
    protocol = "gRPC, asyncio"
    kind, outcome, options = tritonclient.grpc, staticmethod(grpc_outcome), {"client_timeout": TIMEOUT_S}

    def connect(self):
        return tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{self.ports[1]}")


CLIENTS = (Http, Grpc, HttpSharedMemory, GrpcSharedMemory, HttpAsyncio, GrpcAsyncio, Http, HttpSharedMemory)

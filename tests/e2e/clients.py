"""One call for each way to reach the server. All return the same: arrays and response parameters."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype
from tritonclient.utils import shared_memory as shm

OUTPUTS = ("MASK", "CONTOUR")


@dataclass
class Answer:
    arrays: dict[str, np.ndarray]
    data_types: dict[str, str]
    parameters: dict

    def boxes(self) -> tuple[list, list, list]:
        """crop_start, crop_end and input_shape: one entry for each volume."""
        return tuple(json.loads(self.parameters[key]) for key in ("crop_start", "crop_end", "input_shape"))


def http_answer(result, read: bool = True) -> Answer:
    # Outputs in shared memory come without data: there is nothing to read.
    response = result.get_response()
    outputs = {output["name"]: output for output in response.get("outputs", [])}
    return Answer(
        {name: result.as_numpy(name) for name in outputs if read},
        {name: output["datatype"] for name, output in outputs.items()},
        response.get("parameters", {}),
    )


def grpc_answer(result, read: bool = True) -> Answer:
    response = result.get_response()
    outputs = {output.name: output for output in response.outputs}
    parameters = {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in response.parameters.items()}
    return Answer(
        {name: result.as_numpy(name) for name in outputs if read},
        {name: output.datatype for name, output in outputs.items()},
        parameters,
    )


def http(server, model: str, volume: np.ndarray, *, name: str = "INPUT0", outputs=None, binary: bool = True, **options) -> Answer:
    given = tritonclient.http.InferInput(name, list(volume.shape), np_to_triton_dtype(volume.dtype))
    given.set_data_from_numpy(volume, binary_data=binary)
    wanted = [tritonclient.http.InferRequestedOutput(o, binary_data=binary) for o in outputs] if outputs is not None else None
    return http_answer(server.http().infer(model, [given], outputs=wanted, **options))


def grpc(server, model: str, volume: np.ndarray, *, name: str = "INPUT0", outputs=None, **options) -> Answer:
    given = tritonclient.grpc.InferInput(name, list(volume.shape), np_to_triton_dtype(volume.dtype))
    given.set_data_from_numpy(volume)
    wanted = [tritonclient.grpc.InferRequestedOutput(o) for o in outputs] if outputs is not None else None
    options.setdefault("client_timeout", 300)
    return grpc_answer(server.grpc().infer(model, [given], outputs=wanted, **options))


@contextmanager
def region(client, nbytes: int):
    """A system shared-memory region that the server knows."""
    name = f"spleenseg_{uuid.uuid4().hex[:12]}"
    handle = shm.create_shared_memory_region(name, f"/{name}", nbytes)
    try:
        client.register_system_shared_memory(name, f"/{name}", nbytes)
        try:
            yield name, handle
        finally:
            client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(handle)


def asyncio_http(server, model: str, volume: np.ndarray, **options) -> Answer:
    async def call():
        given = tritonclient.http.InferInput("INPUT0", list(volume.shape), np_to_triton_dtype(volume.dtype))
        given.set_data_from_numpy(volume)
        async with tritonclient.http.aio.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
            return http_answer(await client.infer(model, [given], **options))

    return asyncio.run(call())


def asyncio_grpc(server, model: str, volume: np.ndarray, **options) -> Answer:
    async def call():
        given = tritonclient.grpc.InferInput("INPUT0", list(volume.shape), np_to_triton_dtype(volume.dtype))
        given.set_data_from_numpy(volume)
        async with tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            return grpc_answer(await client.infer(model, [given], **options))

    return asyncio.run(call())


def shared_memory(
    server, model: str, volume: np.ndarray, shapes: dict[str, tuple], data_type: str = "FP32", *, grpc: bool = False, **options
) -> Answer:
    """Input and outputs in shared memory. `shapes` are the outputs' shapes, which the client has to know."""
    kind = tritonclient.grpc if grpc else tritonclient.http
    client = server.grpc() if grpc else server.http()
    dtype = np.dtype(triton_to_np_dtype(data_type))
    sizes = {name: int(np.prod(shape)) * dtype.itemsize for name, shape in shapes.items()}
    with region(client, volume.nbytes) as (in_name, in_handle), region(client, sum(sizes.values())) as (out_name, out_handle):
        shm.set_shared_memory_region(in_handle, [volume])
        given = kind.InferInput("INPUT0", list(volume.shape), np_to_triton_dtype(volume.dtype))
        given.set_shared_memory(in_name, volume.nbytes)
        wanted, offset, offsets = [], 0, {}
        for name, size in sizes.items():
            output = kind.InferRequestedOutput(name)
            output.set_shared_memory(out_name, size, offset)
            wanted.append(output)
            offsets[name] = offset
            offset += size
        result = client.infer(model, [given], outputs=wanted, **options)
        answer = grpc_answer(result, read=False) if grpc else http_answer(result, read=False)
        answer.arrays = {
            name: np.array(shm.get_contents_as_numpy(out_handle, dtype, shape, offset=offsets[name]))
            for name, shape in shapes.items()
        }
    return answer


def http_in_pieces(server, model: str, volume: np.ndarray, sizes) -> Answer:
    """The same request written to a raw socket in pieces of the given sizes, which repeat."""
    given = tritonclient.http.InferInput("INPUT0", list(volume.shape), np_to_triton_dtype(volume.dtype))
    given.set_data_from_numpy(volume)
    outputs = [tritonclient.http.InferRequestedOutput(name) for name in OUTPUTS]
    body, json_size = tritonclient.http.InferenceServerClient.generate_request_body([given], outputs=outputs)
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {json_size}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=120) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head)
        position, turn = 0, 0
        while position < len(body):
            size = sizes[turn % len(sizes)]
            connection.sendall(body[position : position + size])
            position, turn = position + size, turn + 1
        reply = b""
        while piece := connection.recv(1 << 20):
            reply += piece
    headers, _, content = reply.partition(b"\r\n\r\n")
    lines = headers.decode().split("\r\n")
    assert " 200 " in lines[0], reply[:2000]
    fields = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("inference-header-content-length")
    result = tritonclient.http.InferenceServerClient.parse_response_body(content, header_length=int(length) if length else None)
    return http_answer(result)

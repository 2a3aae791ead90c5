"""KServe v2 requests written by hand, right ones and wrong ones, and sent over HTTP or gRPC as they are."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import triton_to_np_dtype


@dataclass
class Sent:
    """One request. What is None is left out."""

    shape: list[int]
    data_type: str = "FP32"
    data: bytes = b""
    json_data: object = None
    name: str = "INPUT0"
    copies: int = 1
    shared: tuple[str, int, int] | None = None  # region, offset, bytes
    outputs: list[tuple[str, dict]] | None = None
    parameters: dict = field(default_factory=dict)
    id: str | None = None
    binary_size: int | None = None
    header_length: int | None = None
    garbage: bytes | None = None  # a body that is no request


@dataclass
class Received:
    status: str
    text: str = ""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status in ("200", "OK")


def send_http(server, model: str, sent: Sent) -> Received:
    tensor = {"name": sent.name, "shape": sent.shape, "datatype": sent.data_type}
    if sent.shared:
        region, offset, size = sent.shared
        tensor["parameters"] = {"shared_memory_region": region, "shared_memory_offset": offset, "shared_memory_byte_size": size}
    elif sent.json_data is not None:
        tensor["data"] = sent.json_data
    else:
        tensor["parameters"] = {"binary_data_size": len(sent.data) if sent.binary_size is None else sent.binary_size}
    request: dict = {"inputs": [tensor] * sent.copies}
    if sent.id is not None:
        request["id"] = sent.id
    if sent.outputs is not None:
        request["outputs"] = [{"name": name, "parameters": parameters} for name, parameters in sent.outputs]
    if sent.parameters:
        request["parameters"] = sent.parameters
    head = json.dumps(request).encode() if sent.garbage is None else sent.garbage
    headers = {"Content-Type": "application/octet-stream"}
    headers["Inference-Header-Content-Length"] = str(len(head) if sent.header_length is None else sent.header_length)
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", head + sent.data, headers)
        reply = connection.getresponse()
        body = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        return Received(str(reply.status), body.decode(errors="replace"))
    length = int(reply.headers.get("Inference-Header-Content-Length") or len(body))
    description, rest, arrays = json.loads(body[:length]), body[length:], {}
    for output in description.get("outputs", []):
        dtype = triton_to_np_dtype(output["datatype"])
        if "data" in output:
            arrays[output["name"]] = np.array(output["data"], dtype).reshape(output["shape"])
        elif size := output.get("parameters", {}).get("binary_data_size"):
            arrays[output["name"]] = np.frombuffer(rest[:size], dtype).reshape(output["shape"])
            rest = rest[size:]
    assert not rest, f"{len(rest)} bytes after the last output"
    return Received("200", arrays=arrays)


def send_grpc(server, model: str, sent: Sent) -> Received:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=bytes,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        body = _message(model, sent).SerializeToString() if sent.garbage is None else sent.garbage
        try:
            reply = infer(body, timeout=60)
        except grpc.RpcError as error:
            return Received(error.code().name, error.details() or "")
    arrays = {
        output.name: np.frombuffer(content, triton_to_np_dtype(output.datatype)).reshape(list(output.shape))
        for output, content in zip(reply.outputs, reply.raw_output_contents)
        if content
    }
    return Received("OK", arrays=arrays)


def _message(model: str, sent: Sent) -> service_pb2.ModelInferRequest:
    message = service_pb2.ModelInferRequest(model_name=model, id=sent.id or "")
    for _ in range(sent.copies):
        tensor = message.inputs.add(name=sent.name, datatype=sent.data_type, shape=sent.shape)
        if sent.shared:
            region, offset, size = sent.shared
            _set(tensor.parameters, {"shared_memory_region": region, "shared_memory_offset": offset, "shared_memory_byte_size": size})
        elif sent.json_data is not None:
            tensor.contents.fp32_contents.extend(sent.json_data)
        else:
            message.raw_input_contents.append(sent.data)
    for name, parameters in sent.outputs or []:
        _set(message.outputs.add(name=name).parameters, parameters)
    _set(message.parameters, sent.parameters)
    return message


def _set(parameters, values: dict) -> None:
    for key, value in values.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
        setattr(parameters[key], kind, value)

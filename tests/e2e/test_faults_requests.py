"""Requests that are not what they say they are: refused with a word about it, nothing written where nothing belongs, no network called."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Iterator

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
from checks import TRIED, Expected
from models import SIZE
from tritonclient.grpc import service_pb2
from tritonclient.utils import shared_memory as shm

pytestmark = pytest.mark.usefixtures("nothing_is_left")
SHAPE = (1, 45, 40, 30)
NBYTES = int(np.prod(SHAPE)) * 4
OUT = int(np.prod(SIZE)) * 4


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs(SHAPE[1:], seed=81)[None]


@pytest.fixture(scope="module")
def good(volume) -> Expected:
    return Expected(volume)


@pytest.fixture(scope="module")
def network(nothing_is_left, server, repository, tmp_path_factory) -> Iterator[str]:
    """In this project's PyTorch backend, which counts a call before it is answered. Stock Python models are counted some time after."""
    name = repository.quick(tmp_path_factory.mktemp("network"))
    client = server.http()
    client.load_model(name)
    yield name
    client.unload_model(name)


@pytest.fixture(scope="module")
def model(server, repository, network) -> Iterator[str]:
    name = repository.spleen(network)
    client = server.http()
    client.load_model(name)
    yield name
    client.unload_model(name)


@pytest.fixture(autouse=True)
def goes_on(server, model, network, volume, good) -> Iterator[None]:
    """After each test the server lives, the network was called by good requests alone, and the next request is answered."""
    before, server.answered = calls(server, network), 0
    yield
    assert calls(server, network) - before == server.answered
    good.assert_is(clients.grpc(server, model, volume))


def calls(server, network: str) -> int:
    (statistics,) = server.http().get_inference_statistics(network)["model_stats"]
    return sum(statistics["inference_stats"][outcome].get("count", 0) for outcome in ("success", "fail"))


def post(server, model: str, header: object, body: bytes = b"", **headers: str) -> tuple[int, str]:
    """An inference request over a connection of its own; `header` is what goes before the binary data, bytes or for JSON."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    given = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"} if body else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", head + body, given)
        reply = connection.getresponse()
        return reply.status, reply.read().decode(errors="replace")
    finally:
        connection.close()


def request(change: dict | None = None, **parameters) -> dict:
    """A request for MASK with the volume as binary data, and what a test changes of its input."""
    given = {"name": "INPUT0", "shape": list(SHAPE), "datatype": "FP32", "parameters": {"binary_data_size": NBYTES, **parameters}}
    given.update(change or {})
    return {"inputs": [{k: v for k, v in given.items() if v is not None}], "outputs": [{"name": "MASK"}]}


def assert_refused(server, model, *arguments, **headers) -> None:
    TRIED["malformed requests"] += 1
    status, text = post(server, model, *arguments, **headers)
    shown = [str(a)[:200] for a in arguments]
    assert 400 <= status < 600, (shown, headers, status, text[:300])
    assert len(json.loads(text)["error"]) > 10, (shown, text)
    assert server.alive(), shown


HUGE = [
    [1, 2**32, 2**32, 1],  # 2^64 voxels: 0 in 64 bits
    [1, 2**62, 4, 1],
    [1, 2**31, 2**31, 4],
    [1, 3037000500, 3037000500, 1],  # just above 2^63
    [1, 2**40, 1, 1],
    [1, 2**63 - 1, 1, 1],
    [1, 2**63 - 1, 2**63 - 1, 2**63 - 1],
    [2**62, 4, 1, 1],
    [1, 2**61, 1, 1],  # 2^63 bytes
    [1, 2**62, 1, 1],  # 2^64 bytes: 0 in 64 bits
]
SHAPES = [
    *HUGE,
    [1, -45, 40, 30],
    [1, -45, -40, 30],  # a positive product
    [-1, 45, 40, 30],
    [1, -1, -1, -1],
    [0, 45, 40, 30],
    [1, 0, 40, 30],
    [],
    [54000],
    [45, 40, 30],
    [1, 1, 45, 40, 30],
    [1] * 1000,
    [2**63, 1, 1, 1],
    [1, 2**70, 1, 1],
    [1, 45.5, 40, 30],
    [1, "45", 40, 30],
    [1, None, 40, 30],
    [[1, 45, 40, 30]],
    "1,45,40,30",
    {"0": 1},
    7,
]


@pytest.mark.parametrize("body", [b"", b"\0" * 4, b"\0" * NBYTES], ids=["no bytes", "4 bytes", "a volume's bytes"])
def test_shapes_that_are_none(server, model, body):
    for shape in SHAPES:
        if len(body) == NBYTES and shape in ([45, 40, 30],):
            continue
        assert_refused(server, model, request({"shape": shape}, binary_data_size=len(body)), body)


def test_byte_counts_that_are_not_those_of_the_shape(server, model, volume):
    body = volume.tobytes()
    for size in (0, 1, -1, -NBYTES, NBYTES - 1, NBYTES - 4, NBYTES + 1, NBYTES + 4, 2**31, 2**32 + NBYTES, 2**63 - 1, 2**63, 2**64 + NBYTES, 4.5, "x", None, [NBYTES]):
        assert_refused(server, model, request(binary_data_size=size), body)
    for data in (body[:-1], body[:-4], body + b"\0", body + b"\0" * 4, b"\0"):
        assert_refused(server, model, request(), data)
    for length in ("-1", "0", "1", str(len(body) * 2), str(2**63), str(2**64 + 5), "x"):
        assert_refused(server, model, request(), body, Inference_Header_Content_Length=length)


def test_json_that_is_no_request(server, model):
    whole = request()
    for header in (
        b"", b"{", b"{{{", b"null", b"[]", b"7", b'"inputs"', b"\xff\xfe\0", b"[" * 10_000, b'{"inputs":[{"name":"INPUT0"', {}, {"inputs": None},
        {"inputs": 5}, {"inputs": {}}, {"inputs": []}, {"inputs": [None]}, {"inputs": [[]]}, {"inputs": [{}]},
        {"inputs": whole["inputs"] * 2}, {"inputs": whole["inputs"], "outputs": 5}, {"inputs": whole["inputs"], "outputs": [{"name": 5}]},
        {"inputs": whole["inputs"], "outputs": [{"name": "SPLEEN"}]}, {"inputs": whole["inputs"], "parameters": 5},
    ):  # fmt: skip
        assert_refused(server, model, header)
    for change in ({"name": None}, {"name": 5}, {"name": ""}, {"name": "INPUT1"}, {"name": "I" * 100_000}, {"shape": None}, {"datatype": None}, {"datatype": "FP33"}, {"datatype": 5}, {"datatype": "BYTES"}, {"parameters": 5}, {"parameters": None}):
        assert_refused(server, model, request(change), bytes(NBYTES))


def test_numbers_in_json_that_are_not_those_of_the_shape(server, model):
    for data in ([], [1.0], [1.0] * 23, [1.0] * 25, ["x"] * 24, [None] * 24, [[1.0] * 5, [1.0] * 18], 5, "x", {}, [1e39] * 24, [True] * 24):
        header = {"inputs": [{"name": "INPUT0", "shape": [1, 2, 3, 4], "datatype": "FP32", "data": data}]}
        status, text = post(server, model, header)
        # Where Triton takes what it finds for numbers, the request is one.
        server.answered += status == 200
        assert status == 200 or json.loads(text)["error"], (data, text)


class Memory:
    """A shared-memory region full of a pattern. What a request was not to touch is still there after it."""

    size = 1 << 20

    def __init__(self, server):
        self.name = f"canary_{uuid.uuid4().hex[:8]}"
        self.client = server.http()
        self.handle = shm.create_shared_memory_region(self.name, f"/{self.name}", self.size)
        self.client.register_system_shared_memory(self.name, f"/{self.name}", self.size)
        self.bytes = np.memmap(f"/dev/shm/{self.name}", dtype=np.uint8, mode="r+")
        self.bytes[:] = self.pattern = np.random.default_rng(0).integers(0, 256, self.size, np.uint8)

    def close(self) -> None:
        self.client.unregister_system_shared_memory(self.name)
        shm.destroy_shared_memory_region(self.handle)

    def put(self, offset: int, array: np.ndarray) -> None:
        self.bytes[offset : offset + array.nbytes] = self.pattern[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def taken(self, offset: int) -> np.ndarray:
        """A mask that was written there; the pattern is put back."""
        found = self.bytes[offset : offset + OUT].copy()
        self.bytes[offset : offset + OUT] = self.pattern[offset : offset + OUT]
        return found.view(np.float32).reshape(1, 1, *SIZE)

    def assert_untouched(self, case: object) -> None:
        (changed,) = np.nonzero(self.bytes != self.pattern)
        assert not len(changed), f"{case}: {len(changed)} bytes from {changed[0]} to {changed[-1]} are overwritten"

    def place(self, offset: object = 0, size: object = OUT) -> dict:
        return {"shared_memory_region": self.name, "shared_memory_offset": offset, "shared_memory_byte_size": size}

    def request(self, given: dict, taken: dict | None) -> dict:
        wanted = {"name": "MASK", "parameters": taken or {"binary_data": True}}
        return {"inputs": [{"name": "INPUT0", "shape": list(SHAPE), "datatype": "FP32", "parameters": given}], "outputs": [wanted]}


@pytest.fixture
def memory(server) -> Iterator[Memory]:
    memory = Memory(server)
    yield memory
    memory.close()


def test_an_input_region_of_another_size_or_place(server, model, memory, volume):
    room = memory.size - NBYTES
    memory.put(0, volume)
    for offset, size in [
        (0, NBYTES - 4), (0, NBYTES - 1), (0, NBYTES + 4), (0, 0), (0, -1), (0, -NBYTES), (0, 2**32 + NBYTES), (0, 2**63 - 1), (0, 2**63), (0, 2**64 - 4),
        (room + 1, NBYTES), (room + 4, NBYTES), (memory.size, NBYTES), (2**32, NBYTES), (2**63 - 8, NBYTES), (2**63, NBYTES), (2**64 - 4, NBYTES), (2**64 - NBYTES, NBYTES),
        (-4, NBYTES), (-NBYTES, NBYTES), ("0", NBYTES), (0.5, NBYTES), (0, "x"), (None, None), ([], NBYTES),
    ]:  # fmt: skip
        assert_refused(server, model, memory.request(memory.place(offset, size), memory.place(room)))
        memory.assert_untouched((offset, size))


def test_an_output_region_of_another_size_or_place(server, model, network, memory, volume):
    memory.put(0, volume)
    room = memory.size - OUT
    for offset, size in [
        (NBYTES, OUT - 1), (NBYTES, OUT - 4), (NBYTES, 0), (NBYTES, 1), (NBYTES, 2**63),
        (room + 1, OUT), (memory.size - 4, OUT), (memory.size, OUT), (2**32, OUT), (2**63, OUT), (2**64 - OUT, OUT), (2**64 - 4, OUT), (-4, OUT), (-OUT, OUT),
    ]:  # fmt: skip
        before = calls(server, network)
        assert_refused(server, model, memory.request(memory.place(0, NBYTES), memory.place(offset, size)))
        memory.assert_untouched((offset, size))
        # Whether there is room for the output shows when it is written: the network has been asked by then.
        server.answered += calls(server, network) - before


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 63], ids=lambda n: f"from byte {n}")
def test_regions_at_any_byte(server, model, memory, volume, good, offset):
    """Neither the input nor the output has to be aligned, and an output may have more room than it needs."""
    memory.put(offset, volume)
    place = offset + NBYTES
    status, text = post(server, model, memory.request(memory.place(offset, NBYTES), memory.place(place, OUT + offset)))
    assert status == 200, text
    np.testing.assert_array_equal(memory.taken(place), good.arrays["MASK"])
    memory.assert_untouched(offset)
    server.answered += 1


def test_regions_that_end_with_the_memory_or_lie_upon_each_other(server, model, memory, volume, good):
    for given, taken in ((memory.size - NBYTES, 0), (0, memory.size - OUT), (0, 0), (0, 4), (100, NBYTES)):
        memory.put(given, volume)
        status, text = post(server, model, memory.request(memory.place(given, NBYTES), memory.place(taken)))
        assert status == 200, text
        np.testing.assert_array_equal(memory.taken(taken), good.arrays["MASK"], err_msg=str((given, taken)))
        memory.assert_untouched((given, taken))
        server.answered += 1


def test_grpc_messages_that_are_no_requests(server, model, volume):
    """What HTTP cannot say: data in two places or none, and parameters of other types."""
    stub = server.grpc()._client_stub
    raw = volume.tobytes()

    def refused(contents=(), shape=SHAPE, floats=(), inputs=1, **parameters) -> None:
        TRIED["malformed requests"] += 1
        message = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=contents)
        for _ in range(inputs):
            tensor = message.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
            tensor.contents.fp32_contents.extend(floats)
            for key, value in parameters.items():
                kind = {str: "string_param", int: "int64_param", bool: "bool_param"}[type(value)]
                setattr(tensor.parameters[key], kind, value)
        with pytest.raises(tritonclient.grpc.grpc.RpcError) as error:
            stub.ModelInfer(message, timeout=60)
        assert len(error.value.details()) > 10
        assert error.value.code().name in ("INVALID_ARGUMENT", "INTERNAL", "NOT_FOUND"), error.value

    refused()
    refused([raw, raw])
    refused([raw], inputs=2)
    refused([raw, raw], inputs=2)
    refused([raw], inputs=0)
    refused([raw[:-4]])
    refused([raw], floats=[1.0])
    refused(floats=[1.0] * 7)
    for shape in [shape for shape in SHAPES if isinstance(shape, list) and all(isinstance(n, int) and n < 2**63 for n in shape)]:
        refused([raw] if shape != [45, 40, 30] else [b""], shape=shape)
        refused([b""], shape=shape)
    for value in ("x", True, -4, 2**62):
        refused(shared_memory_region="nowhere", shared_memory_byte_size=value)
        refused(shared_memory_region="nowhere", shared_memory_byte_size=NBYTES, shared_memory_offset=value)
    refused(shared_memory_region=7, shared_memory_byte_size=NBYTES)

"""Requests made at random, most of them wrong in some way: each answer is MONAI's, or an error that says what is wrong.

The same requests in each run. SPLEENSEG_RANDOM_REQUESTS sets how many there are for each protocol.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import clients
import numpy as np
import pytest
import reference
from checks import assert_equals_monai, expected
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st
from kserve import Received, Sent, send_grpc, send_http
from models import SIZE

COUNT = int(os.environ.get("SPLEENSEG_RANDOM_REQUESTS") or 250)
# Two regions of shared memory that the server knows: the first begins with the volume, the second is watched byte for byte.
GIVEN, TAKEN = "random_given", "random_taken"
REGION_SIZE = 96 * 1024
MASK_SIZE = int(np.prod(SIZE)) * 4
CANARY = 0xA5
LARGEST = 2**63 - 1

# A number that a client may write where a size or an offset is meant.
numbers = st.one_of(st.integers(0, 64), st.sampled_from([-1, 2**31, 2**32 - 1, 2**62, LARGEST]), st.integers(0, LARGEST))
axes = st.one_of(st.integers(1, 14), st.integers(1, 40))


@st.composite
def volumes(draw) -> np.ndarray:
    shape = (1, *draw(st.tuples(axes, axes, axes)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    volume = random.uniform(-200.0, 300.0, shape).astype(np.float32)
    kind = draw(st.sampled_from(["plain", "plain", "plain", "air", "one voxel", "not finite"]))
    if kind in ("air", "one voxel"):
        volume[...] = -1000.0
    if kind == "one voxel":
        volume.flat[random.integers(volume.size)] = 100.0
    if kind == "not finite":
        volume.flat[random.integers(volume.size, size=3)] = [np.nan, np.inf, -np.inf]
    return volume


# What may be wrong with a request, each as a change of a right one. Where a change may leave the request right, it says so.
def _shape(draw, sent):
    whole = sent.shape
    sent.shape = draw(
        st.one_of(
            st.sampled_from([whole[1:], [*whole, 1], [1, *whole], [], [1, 0, 0, 0], *([n, *whole[1:]] for n in (0, 2, -1))]),
            st.lists(st.one_of(st.integers(-3, 40), numbers), min_size=4, max_size=4),
            st.just([1, 2**32, 2**32, 1]),  # a product of 0 in 64 bits
        ).filter(lambda shape: shape != whole and np.prod([*map(int, shape)], dtype=object) != len(sent.data) // 4)
    )


def _data_type(draw, sent):
    others = ["FP64", "FP16", "INT16", "INT32", "UINT8", "BOOL", "BYTES", "BF16", "fp32", "", "FP32 ", "\u0000"]
    sent.data_type = draw(st.sampled_from(others))


def _bytes(draw, sent):
    change = draw(st.sampled_from([-1, 1, -4, 4, 1000, "none"]))
    sent.data = b"" if change == "none" else sent.data[:change] if change < 0 else sent.data + bytes(change)


def _name(draw, sent):
    # To the server a name ends at a NUL.
    names = st.one_of(st.sampled_from(["INPUT1", "input0", "", "MASK", "\u0000INPUT0"]), st.text(max_size=20))
    sent.name = draw(names.filter(lambda name: name.split("\0")[0] != "INPUT0"))


def _copies(draw, sent):
    sent.copies = draw(st.sampled_from([0, 2, 3]))


def _output(draw, sent):
    name = draw(st.one_of(st.sampled_from(["MASK_NATIVE", "mask", "", "INPUT0", "MASK "]), st.text(max_size=20)))
    sent.outputs = [*(sent.outputs or []), (name, {})]


def _shared_input(draw, sent):
    region = draw(st.sampled_from([GIVEN, GIVEN, GIVEN, "nobody", ""]))
    offset, size = draw(numbers), draw(st.one_of(st.just(len(sent.data)), numbers))
    sent.shared, sent.data = (region, offset, size), b""


def _shared_output(draw, sent):
    region = draw(st.sampled_from([TAKEN, TAKEN, TAKEN, "nobody", ""]))
    size = draw(st.one_of(st.sampled_from([MASK_SIZE, MASK_SIZE, MASK_SIZE - 1, MASK_SIZE + 4]), numbers))
    place = {"shared_memory_region": region, "shared_memory_offset": draw(numbers), "shared_memory_byte_size": size}
    sent.outputs = [("MASK", place)]


# Each with whether the request may be right all the same.
CHANGES = {
    "shape": (_shape, False),
    "data type": (_data_type, False),
    "bytes": (_bytes, False),
    "name": (_name, False),
    "copies": (_copies, False),
    "output": (_output, False),
    "shared input": (_shared_input, True),
    "shared output": (_shared_output, True),
}


def _binary_size(draw, sent):
    sent.binary_size = draw(st.one_of(numbers, st.just(len(sent.data) + 4)).filter(lambda size: size != len(sent.data)))


def _header_length(draw, sent):
    sent.header_length = draw(st.one_of(st.integers(-2, 400), st.sampled_from([2**31, 2**40])))


def _json(draw, sent):
    count = len(sent.data) // 4
    wrong = st.sampled_from([[], [1.0] * (count + 1), ["a"] * count, "text", {}, [[1.0]] * count, [None] * count, [1e300] * count])
    sent.json_data = draw(wrong)
    sent.data = b""


keys = st.sampled_from(["id", "inputs", "outputs", "parameters", "name", "shape", "datatype", "data", "x"])
documents = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def _garbage_json(draw, sent):
    text = json.dumps(draw(documents)).encode()
    sent.garbage = text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text
    sent.data = b""


def _garbage(draw, sent):
    sent.garbage = draw(st.binary(max_size=64))
    sent.data = b""


HTTP_CHANGES = CHANGES | {
    "binary size": (_binary_size, False),
    "header length": (_header_length, True),
    "JSON data": (_json, False),
    "garbage JSON": (_garbage_json, False),
    "garbage": (_garbage, False),
}
GRPC_CHANGES = CHANGES | {"garbage": (_garbage, True)}  # an empty message names no model

parameters = st.dictionaries(
    st.sampled_from(["priority", "timeout", "binary_data_output", "triton_x"]) | st.text("abc_", min_size=1, max_size=6),
    st.booleans() | st.integers(0, 10) | st.sampled_from([-1, LARGEST]) | st.text(max_size=5) | st.floats(-1e9, 1e9),
    max_size=2,
)


@st.composite
def requests(draw, changes: dict) -> tuple[Sent, np.ndarray, bool, bool]:
    """A request, its volume, whether it may be answered, and whether it may be refused."""
    volume = draw(volumes())
    wanted = draw(st.sampled_from([None, [], ["MASK"], ["CONTOUR"], ["CONTOUR", "MASK"]]))
    binary = {"binary_data": True} if changes is HTTP_CHANGES else {}
    outputs = None if wanted is None else [(name, dict(binary)) for name in wanted]
    sent = Sent(list(volume.shape), data=volume.tobytes(), outputs=outputs, id=draw(st.none() | st.text(max_size=10)))
    if draw(st.integers(0, 3)) == 0:
        sent.parameters = draw(parameters)
    may_be_right, may_be_wrong = True, bool(sent.parameters)
    for change in draw(st.lists(st.sampled_from(sorted(changes)), max_size=2, unique=True)):
        apply, right = changes[change]
        event(change)
        apply(draw, sent)
        may_be_right, may_be_wrong = may_be_right and right, True
    return sent, volume, may_be_right, may_be_wrong


# What a client's own mistake may be called; anything else is a fault of the server's. What is no request at all is refused by
# Triton's front ends, before any model is asked, and they call that internal.
REFUSALS = {"400", "404", "INVALID_ARGUMENT", "NOT_FOUND"}
NO_REQUEST = {
    "500": ('{"error":"Unable to parse ', '{"error":"failed to parse the request JSON buffer: '),
    "INTERNAL": ("Unable to parse request",),
}


@contextmanager
def regions(server):
    """The two regions, as arrays of bytes."""
    client, handles = server.http(), []
    for name in (GIVEN, TAKEN):
        handles.append(clients.shm.create_shared_memory_region(name, f"/{name}", REGION_SIZE))
        client.register_system_shared_memory(name, f"/{name}", REGION_SIZE)
    try:
        yield tuple(np.memmap(f"/dev/shm/{name}", dtype=np.uint8, mode="r+") for name in (GIVEN, TAKEN))
    finally:
        client.unregister_system_shared_memory()
        for handle in handles:
            clients.shm.destroy_shared_memory_region(handle)


def seen(sent: Sent, volume: np.ndarray, region: np.ndarray) -> np.ndarray:
    """The volume that the server has to work on, where it is one."""
    if not sent.shared:
        return volume
    _, offset, size = sent.shared
    there = region[offset : offset + size].tobytes() if offset + size <= REGION_SIZE else b""
    return np.frombuffer(bytearray(there), np.float32).reshape(volume.shape) if len(there) == volume.nbytes else volume


def check(received: Received, volume: np.ndarray, may_be_right: bool, may_be_wrong: bool) -> None:
    note(f"{received.status} {received.text[:300]}")
    if received.ok:
        event("answered")
        assert may_be_right, "a wrong request is answered"
        mask, contour, _ = expected(volume[0])
        for name, wanted in (("MASK", mask), ("CONTOUR", contour)):
            if name in received.arrays:
                np.testing.assert_array_equal(received.arrays[name], wanted[None], err_msg=name)
        return
    event("refused")
    assert received.status in REFUSALS or received.text.startswith(NO_REQUEST[received.status]), received.text
    assert len(received.text) > 10, "an error that says nothing"
    if not may_be_wrong:
        # Nothing is wrong with the request itself: there is nothing in the volume.
        assert "foreground" in received.text, received.text
        assert not (volume > -57).any()


def check_region(received: Received, sent: Sent, region: np.ndarray, volume: np.ndarray) -> None:
    """What the server wrote: the mask, where it was asked to, and nothing else."""
    places = [place for _, place in sent.outputs or [] if place.get("shared_memory_region") == TAKEN]
    if received.ok and places:
        event("written to shared memory")
        first = places[0]["shared_memory_offset"]
        mask = region[first : first + MASK_SIZE]
        np.testing.assert_array_equal(np.frombuffer(mask.tobytes(), np.float32).reshape(1, *SIZE), expected(volume[0])[0])
        mask[...] = CANARY
    assert (region == CANARY).all(), "the server wrote where it was not asked to"


@pytest.mark.parametrize(("send", "changes"), [(send_http, HTTP_CHANGES), (send_grpc, GRPC_CHANGES)], ids=["http", "grpc"])
def test_any_request_is_answered_rightly_or_refused(server, models, send, changes):
    model = models.pair()
    shared = None

    @settings(
        max_examples=COUNT,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(changes))
    def one(request):
        sent, volume, may_be_right, may_be_wrong = request
        given, taken = shared
        given.view(np.float32)[...] = -1000.0
        given[: volume.nbytes] = np.frombuffer(volume.tobytes(), np.uint8)[:REGION_SIZE]
        taken[...] = CANARY
        received = send(server, model, sent)
        assert server.alive(), "the server is gone"
        volume = seen(sent, volume, given)
        check(received, volume, may_be_right, may_be_wrong)
        check_region(received, sent, taken, volume)

    with regions(server) as shared:
        one()
    good = reference.blobs((31, 27, 23), seed=7)[None]
    assert_equals_monai(clients.http(server, model, good), good)

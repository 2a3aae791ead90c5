"""The same answer over HTTP, gRPC and system shared memory, and equal to MONAI's."""

from __future__ import annotations

import clients
import numpy as np
import pytest
import reference
from checks import assert_equals_monai
from models import SIZE

SHAPES = {"MASK": (1, 1, *SIZE), "CONTOUR": (1, 1, *SIZE)}
SHIPPED_SIZE = (224, 224, 224)


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((61, 47, 33), seed=1)[None]


@pytest.mark.parametrize("send", [clients.http, clients.grpc])
def test_small_volume(server, models, volume, send):
    assert_equals_monai(send(server, models.pair(), volume), volume)


@pytest.mark.parametrize("grpc", [False, True], ids=["http", "grpc"])
def test_small_volume_in_shared_memory(server, models, volume, grpc):
    answer = clients.shared_memory(server, models.pair(), volume, SHAPES, grpc=grpc)
    assert_equals_monai(answer, volume)


def test_small_volume_as_json(server, models, volume):
    assert_equals_monai(clients.http(server, models.pair(), volume, binary=False), volume)


@pytest.mark.parametrize(
    "shape", [(1, 40, 30), (40, 1, 30), (40, 30, 1), (200, 7, 9), (3, 3, 300), (24, 20, 16)], ids=lambda s: "x".join(map(str, s))
)
def test_shapes_with_short_and_long_axes(server, models, shape):
    random = np.random.default_rng(sum(shape))
    volume = random.uniform(-200.0, 300.0, shape).astype(np.float32)[None]
    assert_equals_monai(clients.http(server, models.pair(), volume), volume)


def test_body_in_odd_pieces_that_split_a_float(server, models):
    volume = reference.blobs((64, 60, 50), seed=2)[None]
    model = models.pair()
    # Each size is odd, so that most boundaries fall inside a float; the first one falls inside the JSON header.
    pieces = clients.http_in_pieces(server, model, volume, [101, 65537, 4099, 32771])
    assert_equals_monai(pieces, volume)
    whole = clients.shared_memory(server, model, volume, SHAPES)
    for name in clients.OUTPUTS:
        np.testing.assert_array_equal(pieces.arrays[name], whole.arrays[name])


@pytest.fixture(scope="module")
def real_reference(real_ct, shipped):
    """MONAI's result for the real CT, with the class scores of the served network itself."""
    prepared = reference.prepare(real_ct, SHIPPED_SIZE)
    client = shipped.http()
    shape = (1, 2, *SHIPPED_SIZE)
    kind = clients.tritonclient.http
    with clients.region(client, prepared.resized.nbytes) as (i, given), clients.region(client, int(np.prod(shape)) * 4) as (o, got):
        clients.shm.set_shared_memory_region(given, [prepared.resized])
        tensor = kind.InferInput("INPUT__0", list(prepared.resized.shape), "FP32")
        tensor.set_shared_memory(i, prepared.resized.nbytes)
        output = kind.InferRequestedOutput("OUTPUT__0")
        output.set_shared_memory(o, int(np.prod(shape)) * 4)
        client.infer("segmentation_3d", [tensor], outputs=[output])
        scores = np.array(clients.shm.get_contents_as_numpy(got, np.float32, shape))
    mask, contour = reference.finish(scores[0])
    assert 0 < mask.sum() < mask.size
    return prepared, mask[None], contour[None]


def send_shared(server, model, volume):
    return clients.shared_memory(server, model, volume, {name: (1, 1, *SHIPPED_SIZE) for name in clients.OUTPUTS})


@pytest.mark.parametrize("send", [clients.http, clients.grpc, send_shared], ids=["http", "grpc", "shared memory"])
def test_real_ct_with_the_shipped_repository(real_ct, shipped, real_reference, send):
    prepared, mask, contour = real_reference
    answer = send(shipped, "spleen_seg", real_ct[None])
    assert answer.boxes() == ([prepared.start], [prepared.end], [list(real_ct.shape)])
    assert answer.data_types == {"MASK": "FP32", "CONTOUR": "FP32"}
    for name, wanted in (("MASK", mask), ("CONTOUR", contour)):
        found = answer.arrays[name]
        assert found.shape == wanted.shape
        # Resampled floats may differ from MONAI's by rounding, which may turn a voxel whose two scores are almost equal.
        assert np.count_nonzero(found != wanted) <= 20, name

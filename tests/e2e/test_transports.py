"""The same answer over HTTP, gRPC and system shared memory, and equal to MONAI's."""

from __future__ import annotations

import queue
import uuid
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
from checks import assert_equals_monai, expected
from conftest import watched
from leaks import wait_for
from models import SIZE, Repository
from triton import Triton
from tritonclient.utils import triton_to_np_dtype

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


@pytest.mark.parametrize("kind", [clients.tritonclient.http, clients.tritonclient.grpc], ids=["http", "grpc"])
def test_a_client_that_knows_the_metadata_alone(server, models, kind):
    """Tensors made from names, types and shapes of the metadata, as generic KServe clients do; -1 is the client's to choose."""
    model = models.pair()
    client, options = (server.http(), {}) if kind is clients.tritonclient.http else (server.grpc(), {"as_json": True})
    metadata = client.get_model_metadata(model, **options)
    given, volumes = [], []
    for tensor in metadata["inputs"]:
        chosen = iter((1, 41, 37, 29))
        shape = [int(n) if int(n) > 0 else next(chosen) for n in tensor["shape"]]
        volumes.append(np.random.default_rng(3).uniform(-200, 300, shape).astype(triton_to_np_dtype(tensor["datatype"])))
        given.append(kind.InferInput(tensor["name"], shape, tensor["datatype"]))
        given[-1].set_data_from_numpy(volumes[-1])
    wanted = [kind.InferRequestedOutput(tensor["name"]) for tensor in metadata["outputs"]]
    result = client.infer(model, given, outputs=wanted)
    answer = clients.http_answer(result) if kind is clients.tritonclient.http else clients.grpc_answer(result)
    for tensor in metadata["outputs"]:
        found = answer.arrays[tensor["name"]]
        assert answer.data_types[tensor["name"]] == tensor["datatype"]
        assert len(found.shape) == len(tensor["shape"])
        assert all(int(n) in (-1, m) for n, m in zip(tensor["shape"], found.shape)), (tensor, found.shape)
    (volume,) = volumes
    assert_equals_monai(answer, volume)


def test_regions_that_a_request_uses_stay_with_the_server(server, models, commanded, volume, tmp_path):
    """Triton refuses to unregister them; the client unmaps and unlinks them all the same, and the answer is whole."""
    model, go = models.spleen(commanded), tmp_path / "go"
    client, kind = server.grpc(), clients.tritonclient.grpc
    going_in, going_out = (f"{name}_{uuid.uuid4().hex[:12]}" for name in ("going_in", "going_out"))
    sizes = {going_in: volume.nbytes, going_out: int(np.prod(SIZE)) * 4}
    handles = {name: clients.shm.create_shared_memory_region(name, f"/spleenseg_{name}", size) for name, size in sizes.items()}
    for name, size in sizes.items():
        client.register_system_shared_memory(name, f"/spleenseg_{name}", size)
    clients.shm.set_shared_memory_region(handles[going_in], [volume])
    seen = np.memmap(f"/dev/shm/spleenseg_{going_out}", dtype=np.float32, mode="r")
    given = kind.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_shared_memory(going_in, volume.nbytes)
    output = kind.InferRequestedOutput("MASK")
    output.set_shared_memory(going_out, sizes[going_out])
    ended = queue.Queue()
    client.async_infer(model, [given], lambda result, error: ended.put(error), outputs=[output], request_id=f"when({str(go)!r}, good(x))")
    wait_for(go.with_suffix(".begun").exists)
    for name, handle in handles.items():
        with pytest.raises(clients.tritonclient.grpc.InferenceServerException, match="in use"):
            client.unregister_system_shared_memory(name)
        clients.shm.destroy_shared_memory_region(handle)
    go.touch()
    assert ended.get(timeout=120) is None
    np.testing.assert_array_equal(seen.reshape(1, *SIZE), expected(volume[0])[0])
    for name in sizes:
        client.unregister_system_shared_memory(name)
    assert_equals_monai(clients.grpc(server, model, volume), volume)


def test_dev_shm_smaller_than_a_volume(backends, tmp_path):
    """Over HTTP nothing goes through /dev/shm: four volumes at once on a server that has 1 MiB of it."""
    repository = Repository(tmp_path / "models")
    child = repository.quick(tmp_path)
    model = repository.spleen(child)
    server = Triton(repository.root, backends, tmp_path / "log")
    server.mount("-t tmpfs -o size=1m tmpfs")
    watched(server)
    big = reference.blobs((128, 128, 60), seed=5)[None]
    with server:
        assert "tmpfs /dev/shm tmpfs rw,relatime,size=1024k" in Path(f"/proc/{server.process.pid}/mounts").read_text()
        client = server.http()
        tensor = clients.tritonclient.http.InferInput("INPUT0", list(big.shape), "FP32")
        tensor.set_data_from_numpy(big)
        answers = [pending.get_result() for pending in [client.async_infer(model, [tensor]) for _ in range(4)]]
    for answer in answers:
        assert_equals_monai(clients.http_answer(answer), big)


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

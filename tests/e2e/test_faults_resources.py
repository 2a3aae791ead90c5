"""A server that runs out of memory, file descriptors, threads or /dev/shm, and volumes beyond 2 GB and 2^31 voxels."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
import tritonclient.http
from checks import TRIED, Expected, expected
from conftest import watched
from leaks import Held
from models import SIZE, Repository
from triton import Triton
from tritonclient.utils import InferenceServerException as Failed
from tritonclient.utils import shared_memory as shm

MB = 1 << 20
# Each buffer is larger than what the C library keeps reserved for a thread.
BIG = (272, 272, 240)
BIG_BYTES = int(np.prod(BIG)) * 4


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=85)[None]


@pytest.fixture(scope="module")
def good(volume) -> Expected:
    return Expected(volume)


class Limited:
    """A server whose limits can be lowered while it runs, with a small model and one whose buffers are 71 MB and more."""

    def __init__(self, server: Triton, small: str, big: str):
        self.server, self.small, self.big, self.pid = server, small, big, server.process.pid

    def address_space(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize")) * 1024

    def free_descriptor(self) -> int:
        """The number that the next file would get: the limit below which there is no other."""
        taken = {int(path.name) for path in Path(f"/proc/{self.pid}/fd").iterdir()}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    @contextmanager
    def limit(self, kind: int, most: int) -> Iterator[None]:
        TRIED["limits reached"] += 1
        before = resource.prlimit(self.pid, kind, (most, resource.prlimit(self.pid, kind)[1]))
        try:
            yield
        finally:
            resource.prlimit(self.pid, kind, before)


@pytest.fixture(scope="module")
def limited(start_server, tmp_path_factory, volume, good) -> Iterator[Limited]:
    folder = tmp_path_factory.mktemp("limited")
    repository = Repository(folder / "models")
    network = repository.quick(folder)
    config = repository.root / network / "config.pbtxt"
    # OpenMP ends the process where it cannot start a thread.
    config.write_text(config.read_text() + 'parameters { key: "INTRA_OP_THREAD_COUNT" value { string_value: "1" } }\n')
    small, big = repository.spleen(network), repository.spleen(network, size=BIG)
    server = start_server(repository.root, "--model-control-mode=explicit", *[f"--load-model={name}" for name in (network, small, big)])
    for send in (clients.http, clients.grpc):
        good.assert_is(send(server, small, volume))
    held = Held(server)
    yield Limited(server, small, big)
    good.assert_is(clients.http(server, small, volume))
    held.assert_back()
    assert server.stop() == 0, server.tail()


def test_memory_that_cannot_be_had_fails_the_request_that_wants_it(limited, volume, good):
    """The address space is limited a little above what is in use, step by step, so that each large allocation fails in turn."""
    server, client = limited.server, limited.server.http()
    kind = tritonclient.http
    given = kind.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    output = kind.InferRequestedOutput("MASK")
    texts, masks = [], []
    with clients.region(client, BIG_BYTES) as (region, handle):
        output.set_shared_memory(region, BIG_BYTES)

        def ask() -> bool:
            try:
                client.infer(limited.big, [given], outputs=[output])
            except Failed as error:
                texts.append(error.message())
                return False
            masks.append(np.array(shm.get_contents_as_numpy(handle, np.float32, BIG)))
            return True

        for slack in (30, 60, 90, 150, 180, 240, 300, 400, 600):
            with limited.limit(resource.RLIMIT_AS, limited.address_space() + slack * MB):
                answered = ask()
                good.assert_is(clients.http(server, limited.small, volume))
            if answered:
                break
        assert ask(), texts
        np.testing.assert_array_equal(masks[0], masks[-1])
    assert texts[0].startswith(f"the resized volume: out of host memory: {BIG_BYTES} bytes wanted"), texts
    for text in texts:
        assert "memory" in text or "alloc" in text, text


def test_threads_that_cannot_be_had_refuse_the_load(limited, volume, good):
    """Their stacks do not fit: the models that are there go on, and the load works once there is room."""
    server = limited.server
    repository = Repository(server.repository, counter=10)
    name = repository.spleen(repository_network(server), {"threads": "64"})
    with limited.limit(resource.RLIMIT_AS, limited.address_space() + 30 * MB):
        with pytest.raises(Failed, match=r'64 threads \(parameter "threads"\)'):
            server.http().load_model(name)
        good.assert_is(clients.http(server, limited.small, volume))
    server.http().load_model(name)
    good.assert_is(clients.http(server, name, volume))
    server.http().unload_model(name)


def repository_network(server: Triton) -> str:
    return next(entry["name"] for entry in server.http().get_model_repository_index() if entry["name"].startswith("torchscript"))


def test_file_descriptors_that_cannot_be_had(limited, volume, good):
    """Connections that are there go on; new ones, and loads, work again once there are descriptors."""
    server = limited.server
    model = Repository(server.repository, counter=20).spleen(repository_network(server))
    http, grpc = server.http(), server.grpc()
    given = {}
    for kind, client in ((tritonclient.http, http), (tritonclient.grpc, grpc)):
        given[client] = kind.InferInput("INPUT0", list(volume.shape), "FP32")
        given[client].set_data_from_numpy(volume)
        client.infer(limited.small, [given[client]])
    with limited.limit(resource.RLIMIT_NOFILE, limited.free_descriptor()):
        for _ in range(3):
            good.assert_is(clients.http_answer(http.infer(limited.small, [given[http]])))
            good.assert_is(clients.grpc_answer(grpc.infer(limited.small, [given[grpc]])))
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}", network_timeout=2) as late:
            with pytest.raises(Exception, match="timed out|reset|refused|closed"):
                late.is_server_live()
        with pytest.raises(Failed) as error:
            http.load_model(model)
        assert len(error.value.message()) > 20
    good.assert_is(clients.http(server, limited.small, volume))
    good.assert_is(clients.grpc(server, limited.small, volume))
    server.http().load_model(model)
    good.assert_is(clients.http(server, model, volume))
    server.http().unload_model(model)


# The edges of the windows of an area resize to SIZE, so that each one averages voxels that are all alike.
LARGE = {
    "2.2 GB of FP32": (np.float32, (22, 26, 125), {}),
    "2^31 voxels of INT16": (np.int16, (54, 65, 81), {"max_voxels": "3000000000"}),
}


@pytest.fixture(scope="module")
def disk(start_server, backends, tmp_path_factory) -> Iterator[tuple[Triton, Repository, Path]]:
    """A server whose /dev/shm is a folder on disk: a volume of almost only zeros is a file with holes, and takes no memory."""
    folder = tmp_path_factory.mktemp("disk")
    shared = folder / "shm"
    shared.mkdir()
    if shutil.disk_usage(folder).free < 6e9:
        pytest.skip("6 GB of disk are needed")
    repository = Repository(folder / "models")
    (folder / "models").mkdir()
    server = watched(Triton(repository.root, backends, folder / "log", "--model-control-mode=explicit"))
    server.mount(f"--bind {shared}")
    with server:
        yield server, repository, shared


@pytest.mark.parametrize("case", LARGE)
def test_volumes_beyond_two_to_the_31(disk, tmp_path, case):
    server, repository, folder = disk
    data_type, window, parameters = LARGE[case]
    small = np.zeros(SIZE, np.float32)
    # Both ends of the volume, and a body near the far one: addresses that wrap at 32 bits find other voxels, or none.
    small[0, 0, 0] = small[-1, -1, -1] = 200
    small[-4:-2, -5:-2, -9:-3] = 200
    shape = tuple(n * w for n, w in zip(SIZE, window))
    nbytes = int(np.prod(shape)) * np.dtype(data_type).itemsize
    assert nbytes > 2**31 and (data_type is np.float32 or np.prod(shape) > 2**31)
    large = np.memmap(folder / "large", dtype=data_type, mode="w+", shape=shape)
    for at in np.argwhere(small):
        large[tuple(slice(i * w, (i + 1) * w) for i, w in zip(at, window))] = 200
    large.flush()
    client, network = server.http(), repository.quick(tmp_path)
    input_type = {np.float32: "FP32", np.int16: "INT16"}[data_type]
    model = repository.spleen(network, {"a_min": "0", **parameters}, input_type=f"TYPE_{input_type}")
    for name in (network, model):
        client.load_model(name)
    client.register_system_shared_memory("large", "/large", nbytes)
    given = tritonclient.http.InferInput("INPUT0", [1, *shape], input_type)
    given.set_shared_memory("large", nbytes)
    answer = clients.http_answer(client.infer(model, [given]))
    mask, contour, _ = expected(small, a_min=0)
    assert mask.sum() == 36
    np.testing.assert_array_equal(answer.arrays["MASK"][0], mask)
    np.testing.assert_array_equal(answer.arrays["CONTOUR"][0], contour)
    assert answer.boxes() == ([[0, 0, 0]], [list(shape)], [list(shape)])
    client.unregister_system_shared_memory("large")
    for name in (model, network):
        client.unload_model(name)
    del large
    (folder / "large").unlink()


def test_a_python_network_without_room_in_dev_shm(backends, tmp_path, volume, good):
    """Its tensors go through /dev/shm: what does not fit there fails with a word about it, what does is answered."""
    repository = Repository(tmp_path / "models")
    network = repository.child()
    small, big = repository.spleen(network), repository.spleen(network, size=(160, 160, 140))
    server = watched(Triton(repository.root, backends, tmp_path / "log"))
    server.mount("-t tmpfs -o size=8m tmpfs")
    with server:
        for _ in range(2):
            good.assert_is(clients.http(server, small, volume))
            with pytest.raises(Failed) as error:
                clients.http(server, big, volume)
            assert f"model '{network}'" in error.value.message() and "shared memory" in error.value.message(), error.value

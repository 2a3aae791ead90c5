"""Carriers and the segmenter against a stand-in for the server that reads and writes the very shared memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
import tritonclient.http
from spleen_client import ClientError, transport
from spleen_client.foreground import Rule
from spleen_client.nifti import NiftiScan
from spleen_client.segmenter import Segmenter, as_sent
from spleen_client.server import Address, Interface, Server, since

GRID = (3, 4, 5)
LABELS = {"MASK": np.arange(60).reshape(GRID) % 2}


class Stub:
    """What the client uses of spleen_client.server.Server, and what it was sent."""

    grpc, module, timeout_s = False, tritonclient.http, 5
    address = Address.parse("localhost:1")

    def __init__(self, dtype=np.float32, rule=None, input_shape=None, failure=None):
        self.regions, self.input, self.input_shape, self.failure = {}, None, input_shape, failure
        outputs = {name: ([-1, 1, *GRID], np.dtype(np.float32)) for name in LABELS}
        self.interface = Interface("spleen_seg", "1", np.dtype(dtype), outputs, False, rule, "segmentation_3d", "")

    def ask(self, what, *arguments, **options):
        return getattr(self, what)(*arguments, **options)

    def release(self, what, name):
        self.ask(what, name)

    def register_system_shared_memory(self, name, key, nbytes):
        self.regions[name] = (Path("/dev/shm") / key.lstrip("/"), nbytes)

    def unregister_system_shared_memory(self, name):
        del self.regions[name]

    def infer(self, model, inputs, outputs, request_id, parameters):
        if self.failure:
            raise self.failure
        given = inputs[0]._get_tensor()
        dtype = {"FP32": np.float32, "INT16": np.int16}[given["datatype"]]
        region = given["parameters"].get("shared_memory_region")
        if region:
            path, nbytes = self.regions[region]
            assert given["parameters"]["shared_memory_byte_size"] == nbytes
            raw = path.read_bytes()[:nbytes]
        else:
            raw = inputs[0]._get_binary_data()
        self.input = np.frombuffer(raw, dtype).reshape(given["shape"]).copy()
        for output in outputs if region else []:
            tensor = output._get_tensor()
            path, _ = self.regions[tensor["parameters"]["shared_memory_region"]]
            values = LABELS[tensor["name"]].astype(np.float32)
            assert tensor["parameters"]["shared_memory_byte_size"] == values.nbytes
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                memory[: values.nbytes] = values.tobytes()
        shape = self.input_shape or given["shape"][1:]
        answer = {"model_version": "7", "parameters": {"crop_start": "[[0,1,2]]", "crop_end": "[[3,4,5]]", "input_shape": f"[{list(shape)}]"}}
        return SimpleNamespace(get_response=lambda: answer, as_numpy=lambda name: LABELS[name].astype(np.float32)[None, None])


class Volume:
    """A scan that is nothing but its voxels."""

    path, name, spacing_ras = Path("a scan"), "a scan", (1.0, 2.0, 3.0)

    def __init__(self, voxels):
        self.voxels_ras = lambda: voxels
        self.millilitres = lambda n: n * 0.5


def left() -> list:
    return list(Path("/dev/shm").glob(f"{transport.PREFIX}*"))


@pytest.mark.parametrize("carrier", ["system", "network"])
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
@pytest.mark.parametrize("order", "CF")
def test_the_server_sees_fp32_in_c_order_and_its_outputs_come_back(carrier, dtype, order):
    server = Stub()
    voxels = np.asarray(np.random.default_rng(0).integers(-900, 900, (6, 7, 8)), dtype=dtype, order=order)[::-1, :, ::-1]
    found = Segmenter(server, carrier).segment(Volume(voxels))
    np.testing.assert_array_equal(server.input, voxels[None].astype(np.float32))
    # The box is 3 x 3 x 3 voxels of a grid of 3 x 4 x 5: each axis nearest, as test_grid shows.
    wanted = np.zeros((6, 7, 8), np.uint8)
    wanted[0:3, 1:4, 2:5] = LABELS["MASK"][np.ix_([0, 1, 2], [0, 2, 3], [0, 2, 4])]
    np.testing.assert_array_equal(found.mask, wanted)
    assert found.contour.any() and found.voxels == wanted.sum() and found.millilitres == wanted.sum() / 2
    assert found.parameters["model_version"] == "7" and found.sent_bytes == 6 * 7 * 8 * 4
    assert not server.regions and not left()


def test_only_the_box_is_sent_and_the_mask_lies_where_it_was():
    server = Stub(rule=Rule(np.float32(0), (0, 0, 0)))
    voxels = np.zeros((20, 20, 20), np.int16)
    voxels[10:13, 4:9, 2:8] = 1
    found = Segmenter(server, "network").segment(Volume(voxels))
    assert server.input.shape == (1, 3, 5, 6) and found.sent_box == ((10, 13), (4, 9), (2, 8))
    assert found.mask[10:13, 5:8, 4:7].sum() == found.mask.sum() > 0


def test_the_trained_order_is_what_is_sent():
    server = Stub()
    voxels = np.random.default_rng(1).integers(-900, 900, (6, 7, 8)).astype(np.int16)
    # Three axes in turn: there and back are not the same.
    found = Segmenter(server, "network", "ASL").segment(Volume(voxels))
    np.testing.assert_array_equal(server.input[0], voxels[::-1].transpose(1, 2, 0))
    wanted = np.zeros(server.input.shape[1:], np.uint8)
    wanted[0:3, 1:4, 2:5] = LABELS["MASK"][np.ix_([0, 1, 2], [0, 2, 3], [0, 2, 4])]
    np.testing.assert_array_equal(found.mask, wanted.transpose(2, 0, 1)[::-1])


def test_int16_is_sent_where_the_model_takes_it():
    server = Stub(np.int16)
    voxels = np.random.default_rng(2).integers(-900, 900, (6, 7, 8)).astype(np.int16)
    Segmenter(server, "network").segment(Volume(voxels))
    assert server.input.dtype == np.int16
    np.testing.assert_array_equal(server.input[0], voxels)
    odd = np.array([-57.4, 12.6, 1e9, -1e9, np.nan, np.inf, -np.inf])
    assert as_sent(odd, np.dtype(np.int16)).tolist() == [-57, 13, 32767, -32768, -32768, 32767, -32768]
    assert as_sent(np.array([40000, -40000]), np.dtype(np.int16)).tolist() == [32767, -32768]
    assert as_sent(odd, np.dtype(np.float32)) is odd


@pytest.mark.parametrize("failure", [ClientError("refused"), RuntimeError("refused")])
def test_shared_memory_is_given_back_when_the_request_fails(failure):
    server = Stub(failure=failure)
    with pytest.raises(type(failure), match="refused"):
        Segmenter(server, "system").segment(Volume(np.zeros((2, 3, 4), np.int16)))
    assert not server.regions and not left()


def test_an_answer_about_another_volume_is_refused():
    with pytest.raises(ClientError, match="input_shape: found .9, 9, 9., sent was .2, 3, 4."):
        Segmenter(Stub(input_shape=(9, 9, 9)), "network").segment(Volume(np.zeros((2, 3, 4), np.int16)))


def test_nothing_above_a_min_is_said_before_anything_is_sent(tmp_path):
    nibabel.save(nibabel.Nifti1Image(np.full((4, 5, 6), -1000, np.int16), np.eye(4)), tmp_path / "air.nii")
    server = Stub(rule=Rule(np.float32(-57), (0, 0, 0)))
    with pytest.raises(ClientError, match="air.nii has no foreground: no voxel is above a_min, -57 HU"):
        Segmenter(server, "network").segment(NiftiScan(tmp_path / "air.nii"))
    assert server.input is None


def test_too_little_shared_memory_is_said_before_it_is_touched(tmp_path):
    with pytest.raises(ClientError, match="--shm-size"):
        transport.need_shared_memory(1 << 60, str(tmp_path))
    transport.need_shared_memory(1, str(tmp_path))


def test_what_a_protocol_cannot_carry_is_said_before_it_is_made():
    with pytest.raises(ClientError, match="the request has 4.80 GB, http carries at most 2"):
        transport.Network(Stub()).prepare([1, 2000, 2000, 300], np.dtype(np.float32), {})


class Cuda:
    """Stands in for tritonclient.utils.cuda_shared_memory, whose regions cannot be made without a GPU."""

    class CudaSharedMemoryException(Exception):
        pass

    def __init__(self):
        self.memory = {}

    def create_shared_memory_region(self, name, nbytes, device):
        self.memory[name] = bytearray(nbytes)
        return name

    def destroy_shared_memory_region(self, handle):
        del self.memory[handle]

    def get_raw_handle(self, handle):
        return f"raw {handle}"

    def set_shared_memory_region(self, handle, values):
        self.memory[handle][:] = values[0].tobytes()

    def get_contents_as_numpy(self, handle, dtype, shape):
        return np.frombuffer(bytes(self.memory[handle]), dtype).reshape(shape)


def test_cuda_memory_is_filled_registered_and_given_back():
    server, cuda = Stub(), Cuda()
    registered = {}
    server.register_cuda_shared_memory = lambda name, raw, device, nbytes: registered.update({name: (raw, device, nbytes)})
    server.unregister_cuda_shared_memory = lambda name: registered.pop(name)
    carrier = transport.CudaMemory.__new__(transport.CudaMemory)
    transport._Regions.__init__(carrier, server)
    carrier.cuda = cuda
    outputs = {"MASK": ([1, 1, *GRID], np.dtype(np.float32))}
    with carrier:
        given = carrier.prepare([1, 2, 3, 4], np.dtype(np.int16), outputs)
        given[:] = np.arange(24).reshape(given.shape)
        tensor, wanted = carrier.tensors(outputs)
        name = tensor._get_tensor()["parameters"]["shared_memory_region"]
        assert registered[name] == (f"raw {name}", 0, 48)
        assert np.frombuffer(bytes(cuda.memory[name]), np.int16).tolist() == list(range(24))
        cuda.memory[wanted[0]._get_tensor()["parameters"]["shared_memory_region"]][:] = LABELS["MASK"].astype(np.float32).tobytes()
        np.testing.assert_array_equal(carrier.read(None, outputs)["MASK"][0, 0], LABELS["MASK"])
    assert not registered and not cuda.memory


def test_cuda_without_its_package_is_one_line():
    with pytest.raises(ClientError, match="needs a GPU and the package cuda-python"):
        transport.CudaMemory(Stub())


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("localhost:8000", ("http", "localhost", 8000, False)),
        ("triton", ("http", "triton", 8000, False)),
        ("grpc://10.0.0.7", ("grpc", "10.0.0.7", 8001, False)),
        ("https://host:8443/", ("http", "host", 8443, True)),
        ("grpcs://[::1]:9", ("grpc", "::1", 9, True)),
    ],
)
def test_addresses(url, parts):
    address = Address.parse(url)
    assert (address.protocol, address.host, address.port, address.encrypted) == parts


@pytest.mark.parametrize("url", ["ftp://host", "host:port", "http://host/path", ""])
def test_other_addresses_are_refused(url):
    with pytest.raises(ClientError, match="accepted are HOST:PORT"):
        Address.parse(url)


def test_own_addresses_are_known_and_others_are_not():
    assert Address.parse("localhost:1").on_this_machine() and Address.parse("127.0.0.1:1").on_this_machine()
    assert not Address.parse("203.0.113.7:1").on_this_machine()  # kept for documentation: nobody has it
    assert not Address.parse("no-such-host.invalid:1").on_this_machine()


@pytest.mark.parametrize("url", ["127.0.0.1:9", "grpc://127.0.0.1:9"])
def test_no_server_is_one_line(url):
    with Server(url, timeout_s=2) as server, pytest.raises(ClientError, match="no Triton at") as caught:
        Segmenter(server)
    assert "\n" not in str(caught.value)


def test_stage_means_are_the_difference_of_two_totals():
    before = {"m": {"queue": 1_000_000, "compute_input": 0, "compute_infer": 0, "compute_output": 0, "count": 3}}
    after = {"m": {"queue": 9_000_000, "compute_input": 2_000_000, "compute_infer": 0, "compute_output": 0, "count": 7}}
    assert since(before, after)["m"] == {"queue": 2.0, "compute_input": 0.5, "compute_infer": 0.0, "compute_output": 0.0}

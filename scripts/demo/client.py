"""One request to spleen_seg whose input and outputs lie in system shared memory."""

from __future__ import annotations

import os
import time
import uuid
import warnings
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

warnings.filterwarnings("ignore", message="pkg_resources is deprecated")  # tritonclient's own business
import tritonclient.http  # noqa: E402
from tritonclient.utils import InferenceServerException, triton_to_np_dtype  # noqa: E402
from tritonclient.utils import shared_memory as shm  # noqa: E402

from . import DemoError  # noqa: E402
from .grid import Crop  # noqa: E402

MODEL, NETWORK = "spleen_seg", "segmentation_3d"
STAGES = ("queue", "compute_input", "compute_infer", "compute_output")
SHARED_MEMORY = "/dev/shm"
TIMEOUT_S = 600


@dataclass
class Answer:
    mask: np.ndarray  # the network's grid, three axes
    contour: np.ndarray
    crop: Crop
    filled_s: float  # the client's copy of the volume into shared memory
    round_trip_s: float  # from sending the request to having the answer
    stages_ms: dict[str, dict[str, float]]  # of each model, from the server's statistics


@contextmanager
def _region(client, nbytes: int):
    """A shared-memory region known to the server."""
    name = f"spleenseg_demo_{uuid.uuid4().hex[:12]}"
    handle = shm.create_shared_memory_region(name, f"/{name}", nbytes)
    try:
        client.register_system_shared_memory(name, f"/{name}", nbytes)
        try:
            yield name, handle
        finally:
            client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(handle)


def need_shared_memory(nbytes: int, folder: str = SHARED_MEMORY) -> None:
    """Writing more than there is would end this process with SIGBUS; containers often have 64 MB only."""
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if free < nbytes:
        raise DemoError(
            f"{folder} has {free / 1e6:.0f} MB free, this volume needs {nbytes / 1e6:.0f} MB; in a container start it with --shm-size=1g"
        )


def _outputs(client) -> dict[str, tuple[list[int], np.dtype]]:
    """Shape and data type of MASK and CONTOUR for one volume, as the server declares them."""
    declared = {o["name"]: o for o in client.get_model_metadata(MODEL)["outputs"]}
    found = {}
    for name in ("MASK", "CONTOUR"):
        if name not in declared:
            raise DemoError(f"{MODEL} declares no output {name}, only {sorted(declared)}")
        batch, *dims = declared[name]["shape"]
        if min(dims) < 1:
            raise DemoError(f"{MODEL}: {name} is declared as {declared[name]['shape']}; fixed dims are needed to size its memory")
        found[name] = ([1, *dims], np.dtype(triton_to_np_dtype(declared[name]["datatype"])))
    return found


def _totals(client) -> dict[str, dict[str, int]]:
    """Nanoseconds that each model has spent in each stage so far."""
    totals = {}
    for model in (MODEL, NETWORK):
        (stats,) = client.get_inference_statistics(model)["model_stats"]
        totals[model] = {stage: int(stats["inference_stats"][stage].get("ns", 0)) for stage in STAGES}
    return totals


def segment(url: str, voxels_ras: np.ndarray) -> Answer:
    """Sends one volume in RAS: any data type and memory order, FP32 in C order is what the server gets."""
    try:
        with tritonclient.http.InferenceServerClient(url, network_timeout=TIMEOUT_S, connection_timeout=TIMEOUT_S) as client:
            return _segment(client, voxels_ras)
    except InferenceServerException as error:
        raise DemoError(f"the server answered: {error.message()}") from None


def _segment(client, voxels_ras: np.ndarray) -> Answer:
    shape = [1, *voxels_ras.shape]
    outputs = _outputs(client)
    sizes = {name: int(np.prod(dims)) * dtype.itemsize for name, (dims, dtype) in outputs.items()}
    in_bytes = int(np.prod(shape)) * 4
    need_shared_memory(in_bytes + sum(sizes.values()))
    with _region(client, in_bytes) as (in_name, in_memory), _region(client, sum(sizes.values())) as (out_name, out_memory):
        begin = time.perf_counter()
        # A view of the shared memory: the one copy that is made also converts type, order and orientation.
        np.copyto(shm.get_contents_as_numpy(in_memory, np.float32, shape)[0], voxels_ras, casting="unsafe")
        filled = time.perf_counter() - begin

        given = tritonclient.http.InferInput("INPUT0", shape, "FP32")
        given.set_shared_memory(in_name, in_bytes)
        wanted, offsets = [], {}
        for name, size in sizes.items():
            offsets[name] = sum(sizes[n] for n in offsets)
            output = tritonclient.http.InferRequestedOutput(name)
            output.set_shared_memory(out_name, size, offsets[name])
            wanted.append(output)

        before = _totals(client)
        begin = time.perf_counter()
        response = client.infer(MODEL, [given], outputs=wanted).get_response()
        round_trip = time.perf_counter() - begin
        after = _totals(client)

        arrays = {
            name: shm.get_contents_as_numpy(out_memory, dtype, dims, offset=offsets[name]).reshape(dims[-3:]).astype(np.uint8)
            for name, (dims, dtype) in outputs.items()
        }
    stages = {model: {s: (after[model][s] - before[model][s]) / 1e6 for s in STAGES} for model in after}
    crop = Crop.of_response(response.get("parameters", {}))
    if crop.input_shape != voxels_ras.shape:
        raise DemoError(f"response parameter input_shape: found {crop.input_shape}, sent was {voxels_ras.shape}")
    return Answer(arrays["MASK"], arrays["CONTOUR"], crop, filled, round_trip, stages)

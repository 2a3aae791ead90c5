"""Before anything is timed: do the stacks answer the same?"""

from __future__ import annotations

import numpy as np
import tritonclient.http
from scipy import ndimage

from .repositories import SPLEEN
from .server import Server

# The resized volumes, and the scores of two builds of the network, may differ in the last bits; where two scores are as
# close as that the argmax follows. Each such voxel can move the contour at its 26 neighbours.
TOLERATED = {"MASK": 1e-5, "CONTOUR": 27e-5}


class NotEqual(Exception):
    """The stacks do not do the same work, so comparing their times would mean nothing."""


def answer(server: Server, volume: np.ndarray) -> dict[str, np.ndarray]:
    """MASK and CONTOUR of one volume [H,W,D]."""
    client = tritonclient.http.InferenceServerClient(
        f"127.0.0.1:{server.http_port}", connection_timeout=300, network_timeout=300
    )
    try:
        given = tritonclient.http.InferInput("INPUT0", [1, *volume.shape], "FP32")
        given.set_data_from_numpy(volume[None])
        result = client.infer(SPLEEN, [given])
        return {name: result.as_numpy(name) for name in TOLERATED}
    finally:
        client.close()


def compare(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> dict[str, int]:
    """The number of voxels that differ, by output. Raises where that is more than rounding explains."""
    differing = {}
    for name, limit in TOLERATED.items():
        a, b = ours[name], theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise NotEqual(f"{name}: {a.dtype} {a.shape} and {b.dtype} {b.shape}")
        differing[name] = int(np.count_nonzero(a != b))
        if differing[name] > limit * a.size:
            raise NotEqual(f"{name}: {differing[name]} of {a.size} voxels differ; at most {limit * a.size:.0f} are accepted")
    return differing


def describe(outputs: dict[str, np.ndarray]) -> dict[str, int]:
    return {name: int(np.count_nonzero(array)) for name, array in outputs.items()}


def components(scores_positive: np.ndarray) -> int:
    """The number of components, all 26 neighbours counting."""
    return int(ndimage.label(scores_positive, np.ones((3, 3, 3)))[1])

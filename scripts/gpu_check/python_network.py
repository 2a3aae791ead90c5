"""Whether a network in Triton's Python backend works here by itself, without anything of this project."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from .check import PYTHON, SERVES_NONE, Check
from .regions import CudaRegion
from .repositories import NETWORK, network
from .server import Server


def refused(check: Check) -> str:
    """Why not."""
    network(check.work / "models", check.gpu, backend=PYTHON)
    x = np.linspace(-1, 2, 120, dtype=np.float32).reshape(1, 1, 4, 5, 6)
    scores = np.concatenate([0.5 - x, x - 0.5], axis=1)
    try:
        with Server(check, check.work / "models", f"python_network_{'gpu' if check.gpu else 'cpu'}") as server:
            for kind in (None, CudaRegion) if check.gpu else (None,):
                with ExitStack() as stack:
                    given, target = (stack.enter_context(server.region(kind, array.nbytes)) for array in (x, scores))
                    if given:
                        given.write(x)
                    arrays, _ = server.infer(NETWORK, x, {"OUTPUT__0": target}, given, tensor="INPUT__0")
                    found = target.read() if target else arrays["OUTPUT__0"].tobytes()
                if found != scores.tobytes():
                    return SERVES_NONE.format("other scores than NumPy's")
    except (OSError, RuntimeError) as error:
        return SERVES_NONE.format(error)
    return ""

"""The placement matrix: models on CPU or GPU, input and outputs in host, system or CUDA shared memory."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import numpy as np

from .check import Check
from .regions import CudaRegion, Region, SystemRegion
from .repositories import network, spleen
from .server import Server

SIZE = (48, 40, 56)
OUTPUTS = ("MASK", "CONTOUR")


def run(check: Check) -> None:
    kinds = (False, True) if check.gpu else (False,)
    memories: dict[str, type[Region] | None] = {"host": None, "system": SystemRegion}
    if check.gpu:
        memories["CUDA"] = CudaRegion
    volume = np.random.default_rng(3).normal(40, 120, (1, 96, 80, 61)).astype(np.float32)
    repository = check.work / "models"
    for gpu in kinds:
        network(repository, gpu, name=f"network_{device(gpu)}")
    pairs = list(itertools.product(kinds, repeat=2))
    for ours, theirs in pairs:
        child = f"network_{device(theirs)}"
        spleen(check.bundle, repository, ours, SIZE, name=f"spleen_{device(ours)}_{device(theirs)}", child=child)
    wrong, answers = [], {}
    with Server(check, repository, "placement") as server:
        for (ours, theirs), source, target in itertools.product(pairs, memories, memories):
            what = f"spleen_seg on {device(ours)}, segmentation_3d on {device(theirs)}, INPUT0 in {source}, outputs in {target} memory"
            try:
                answers[what] = one(server, f"spleen_{device(ours)}_{device(theirs)}", volume, memories[source], memories[target])
            except Exception as error:  # noqa: BLE001: the other combinations say where it works
                wrong.append(f"{what}: {type(error).__name__}: {error}")
    # The first has both models on the CPU and the bytes in the requests: the way that parity on the CPU is checked.
    expected = next(iter(answers.values()), None)
    if expected and not any(expected[1]):
        wrong.append("the contour is empty, which shows nothing")
    wrong += [f"{what}: other results than with everything on the host" for what, found in answers.items() if found != expected]
    check.say(f"{len(pairs) * len(memories) ** 2} combinations, {len(wrong)} wrong")
    check.fail_if(wrong, "placement")


def device(gpu: bool) -> str:
    return "GPU" if gpu else "CPU"


def one(server: Server, model: str, volume: np.ndarray, source: type[Region] | None, target: type[Region] | None) -> tuple[bytes, ...]:
    with ExitStack() as stack:
        given = stack.enter_context(server.region(source, volume.nbytes))
        if given:
            given.write(volume)
        byte_size = int(np.prod(SIZE)) * 4
        outputs = {name: stack.enter_context(server.region(target, byte_size)) for name in OUTPUTS}
        arrays, _ = server.infer(model, volume, outputs, given)
        return tuple(region.read() if region else arrays[name].tobytes() for name, region in outputs.items())

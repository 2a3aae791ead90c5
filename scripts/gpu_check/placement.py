"""The placement matrix: models on CPU or GPU, input and outputs in host, system or CUDA shared memory."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import numpy as np

from .check import TITLES, Check
from .driver import sharing_refused
from .regions import CudaRegion, Region, SystemRegion, room
from .repositories import network, spleen
from .server import Server

SIZE = (48, 40, 56)
# Of the client's regions; with room to spare for networks in the Python backend.
NEEDS_SHM = 16 << 20
OUTPUTS = ("MASK", "CONTOUR")


def run(check: Check) -> str | None:
    kinds = (False, True) if check.gpu else (False,)
    memories: dict[str, type[Region] | None] = {"host": None}
    left_out = []
    if room() > NEEDS_SHM:
        memories["system"] = SystemRegion
    else:
        left_out.append(f"system shared memory: {room() >> 20} MiB of /dev/shm are free")
    if check.gpu and (refused := sharing_refused()):
        left_out.append(f"CUDA shared memory: {refused}")
    elif check.gpu:
        memories["CUDA"] = CudaRegion
    volume = np.random.default_rng(3).normal(40, 120, (1, 96, 80, 61)).astype(np.float32)
    wrong, answers = [], {}
    for backend in check.networks:
        found = every(check, backend, kinds, memories, volume, wrong)
        check.say(f"network {TITLES[backend]}: {len(kinds) ** 2 * len(memories) ** 2} combinations, {len(found)} answered")
        answers.update(found)
    # The first has both models on the CPU and the bytes in the requests: the way that parity on the CPU is checked.
    expected = next(iter(answers.values()), None)
    if expected and not any(expected[1]):
        wrong.append("the contour is empty, which shows nothing")
    wrong += [f"{what}: other results than with everything on the host" for what, found in answers.items() if found != expected]
    check.say(f"{len(answers)} answers, {len(wrong)} wrong")
    check.fail_if(wrong, "placement")
    return "; ".join(left_out)


def every(check: Check, backend: str, kinds: tuple, memories: dict, volume: np.ndarray, wrong: list[str]) -> dict[str, tuple[bytes, ...]]:
    """What each combination answers, with the network in this backend. One that fails is added to `wrong`."""
    repository, answers = check.work / backend, {}
    for gpu in kinds:
        network(repository, gpu, name=f"network_{device(gpu)}", backend=backend)
    pairs = list(itertools.product(kinds, repeat=2))
    for ours, theirs in pairs:
        child = f"network_{device(theirs)}"
        spleen(check.bundle, repository, ours, SIZE, name=f"spleen_{device(ours)}_{device(theirs)}", child=child)
    with Server(check, repository, f"placement_{backend}") as server:
        for (ours, theirs), source, target in itertools.product(pairs, memories, memories):
            what = f"spleen_seg on {device(ours)}, segmentation_3d {TITLES[backend]} on {device(theirs)}, INPUT0 in {source}, outputs in {target} memory"
            try:
                answers[what] = one(server, f"spleen_{device(ours)}_{device(theirs)}", volume, memories[source], memories[target])
            except Exception as error:  # noqa: BLE001: the other combinations say where it works
                wrong.append(f"{what}: {type(error).__name__}: {error}")
    return answers


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

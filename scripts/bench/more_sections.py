"""What is measured without the UNet, where only the steps around the network matter; and what is measured under load."""

from __future__ import annotations

import numpy as np

from . import equality, inputs
from .memory import MB, Sampler
from .perf import Load
from .repositories import PYTHON, PYTHON_WHOLE, RUST, Stack
from .sections import check_equal, data, in_turn, network_load, volume_load
from .session import Session
from .settings import LONGEST

LIGHT = "_light"  # suffix of the servers with the network that only compares with a threshold


def start_light(session: Session) -> None:
    network = inputs.write_threshold_network(session.work / "threshold.pt")
    for stack in (RUST, PYTHON):
        session.start(stack.name + LIGHT, stack, network)


def light_is_up(session: Session) -> bool:
    return all(stack.name + LIGHT in session.servers and session.servers[stack.name + LIGHT].alive() for stack in (RUST, PYTHON))


def noise(session: Session) -> None:
    """A mask of very many components: the worst case for what comes after the network."""
    volume = inputs.noise()
    inputs.write_raw(session.work / "data" / "noise", "INPUT0", volume)
    scatter = inputs.as_the_network_gets_it(volume)[0, 0] > inputs.THRESHOLD
    session.results["noise_components"] = equality.components(scatter)
    session.results["noise_voxels"] = int(np.count_nonzero(scatter))
    check_equal(session, {"noise": volume}, (RUST, PYTHON), LIGHT)
    for turn in range(session.settings.noise_rounds):
        for stack in in_turn((RUST, PYTHON), turn):
            load = volume_load(data(session, "noise"), requests=2)
            session.measure(session.servers[stack.name + LIGHT], load, section="inputs", input="noise", stack=stack.name, round=turn)


def growth(session: Session) -> None:
    """The same body in more and more slices; and 1 GB once, for this backend."""
    for slices in session.settings.growth:
        folder = inputs.write_raw(session.work / "data" / "growth", "INPUT0", inputs.phantom(slices))
        for turn in range(session.settings.growth_rounds):
            for stack in in_turn((RUST, PYTHON), turn):
                _grow(session, stack, folder, slices, turn)
    folder = inputs.write_raw(session.work / "data" / "growth", "INPUT0", inputs.phantom(LONGEST))
    for turn in range(session.settings.growth_rounds):
        _grow(session, RUST, folder, LONGEST, turn)


def _grow(session: Session, stack: Stack, folder: str, slices: int, turn: int) -> None:
    server = session.servers[stack.name + LIGHT]
    with Sampler(server.process.pid, server.shm_prefix, interval_s=0.05) as watched:
        record = session.measure(
            server, volume_load(folder, slices, requests=2), section="growth", slices=slices, stack=stack.name, round=turn
        )
    record["peak_mb"] = watched.peak_mb


def soak(session: Session) -> None:
    """Is memory flat? Sampled after each part of many requests, in a server that has served before."""
    server = session.servers[RUST.name + LIGHT]
    part = max(session.settings.soak_requests // 10, 1)
    for number in range(10):
        with Sampler(server.process.pid, server.shm_prefix) as watched:
            session.measure(server, volume_load(requests=part), section="soak", stack=RUST.name, round=number)
            rest = watched.sample()
        session.results.setdefault("soak", []).append(
            {"requests": (number + 1) * part, "peak_mb": watched.peak_mb, "rest_mb": rest / MB}
        )


def concurrency(session: Session) -> None:
    """Four clients at once, with one instance of each model and with two; against the network alone under the same load."""
    stacks = (RUST, PYTHON_WHOLE) if session.settings.python_under_load else (RUST,)
    for instances in (1, 2):
        for stack in stacks:
            name = f"{stack.name}_x{instances}"
            server = session.start(name, stack, instances=instances)
            rounds = session.settings.load_rounds if stack is RUST else 1
            for turn in range(rounds):
                loads: list[Load] = [volume_load(requests=_requests(session, stack), concurrency=4)]
                if stack is RUST:
                    loads.append(network_load(data(session, "network_zero"), requests=_requests(session, stack), concurrency=4))
                for load in loads if turn % 2 == 0 else loads[::-1]:
                    session.measure(server, load, section="concurrency", stack=stack.name, instances=instances, round=turn)
            session.stop(name)


def _requests(session: Session, stack: Stack) -> int:
    return session.settings.load_requests if stack is RUST else max(session.settings.load_requests // 2, 4)



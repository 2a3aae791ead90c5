"""What is measured, in the order in which it is measured. Every run goes into the session's results with its labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from . import equality, inputs
from .memory import MB, Sampler
from .perf import TRANSPORTS, Load
from .repositories import NETWORK, NETWORK_ONLY, PYTHON, PYTHON_WHOLE, RUST, SPLEEN, STACKS, Stack
from .session import Session
from .yardstick import Copy

COMPARED = (RUST, PYTHON, PYTHON_WHOLE)
NETWORK_SHAPE = (1, 224, 224, 224)


def volume_load(data: str = "zero", slices: int = inputs.SHAPE[2], **options) -> Load:
    return Load(SPLEEN, "INPUT0", (*inputs.SHAPE[:2], slices), data, **options)


def network_load(data: str = "zero", **options) -> Load:
    return Load(NETWORK, "INPUT__0", NETWORK_SHAPE, data, **options)


def in_turn(stacks: tuple[Stack, ...], turn: int) -> tuple[Stack, ...]:
    """Every other round goes backwards, so that no stack always follows the same one."""
    return stacks if turn % 2 == 0 else stacks[::-1]


def write_inputs(session: Session) -> dict[str, np.ndarray]:
    session.say("making the inputs")
    volumes = {"zero": np.zeros(inputs.SHAPE, np.float32), "phantom": inputs.phantom(inputs.SHAPE[2])}
    for name, volume in volumes.items():
        inputs.write_raw(session.work / "data" / f"network_{name}", "INPUT__0", inputs.as_the_network_gets_it(volume))
    inputs.write_raw(session.work / "data" / "phantom", "INPUT0", volumes["phantom"])
    return volumes


def data(session: Session, name: str) -> str:
    return name if name == "zero" else str(session.work / "data" / name)


def start(session: Session) -> None:
    """Starts every stack alone, and watches its memory from readiness over its first requests."""
    for stack in (NETWORK_ONLY, *COMPARED):
        server = session.start(stack.name, stack)
        session.results["ready"].append({"stack": stack.name, "seconds": server.ready_s})
        session.say(f"{stack.title}: ready after {server.ready_s:.1f} s")
        number = session.settings.first_requests
        network_data = data(session, "network_zero")
        load = volume_load(requests=number) if stack.pipeline else network_load(network_data, requests=number)
        with Sampler(server.process.pid, server.shm_prefix) as watched:
            idle, processes = watched.sample(), len(watched.pids)
            session.measure(server, load, section="first requests", stack=stack.name)
        session.results["memory"].append(
            {
                "stack": stack.name,
                "processes": processes,
                "idle_mb": idle / MB,
                "peak_mb": watched.peak_mb,
                "python_backend_shm_mb": watched.shared_peak_mb,
            }
        )
        session.say(f"{stack.title}: {watched.peak_mb:.0f} MB at most, {processes} processes")
        if stack is NETWORK_ONLY:
            session.stop(stack.name)


def check_equal(session: Session, volumes: dict[str, np.ndarray], stacks=COMPARED, suffix: str = "") -> None:
    for name, volume in volumes.items():
        answers = {stack.name: equality.answer(session.servers[stack.name + suffix], volume) for stack in stacks}
        ours = answers.pop(RUST.name)
        for stack, theirs in answers.items():
            entry = {"input": name, "stack": stack, "voxels": equality.describe(ours)}
            entry["differing"] = equality.compare(ours, theirs)
            session.results["equality"].append(entry)
            session.say(f"{name}, {STACKS[stack].title}: same answer but for {entry['differing']} voxels")


def headline(session: Session) -> None:
    """The zero volume over every transport, and the network alone, one stack after the other."""
    copy = Copy(int(np.prod(inputs.SHAPE)) * 4)
    took_s = 0.0
    for turn in range(session.settings.rounds):
        if turn and not session.has_time(f"round {turn + 1}", took_s):
            break
        began = session.elapsed_s()
        session.results["yardstick"].append({"round": turn, "ms": copy.best_ms()})
        for transport in TRANSPORTS:
            for stack in in_turn(COMPARED, turn):
                if stack is PYTHON_WHOLE and transport not in session.settings.whole_stack_transports:
                    continue
                load = volume_load(transport=transport, requests=session.settings.requests)
                session.measure(session.servers[stack.name], load, section="headline", input="zero", stack=stack.name, round=turn)
                if transport == "shm" and stack is RUST:
                    alone = network_load(data(session, "network_zero"), requests=session.settings.requests)
                    session.measure(session.servers[stack.name], alone, section="alone", input="zero", stack=stack.name, round=turn)
        took_s = session.elapsed_s() - began


def phantom(session: Session) -> None:
    """The same on a body instead of an empty volume, in shared memory."""
    for turn in range(session.settings.phantom_rounds):
        for stack in in_turn((RUST, PYTHON), turn):
            load = volume_load(data(session, "phantom"), requests=session.settings.requests)
            session.measure(session.servers[stack.name], load, section="inputs", input="phantom", stack=stack.name, round=turn)


def steps(session: Session) -> None:
    """The time of each step inside one request. Both backends note it themselves, and it costs them nothing to speak of."""
    found = {}
    for stack in (RUST, PYTHON):
        server = session.servers[stack.name]
        notes = session.work / stack.name / "steps.jsonl" if stack.pipeline == "python" else server.log
        already = notes.stat().st_size
        server.set_verbose(1)
        session.measure(server, volume_load(data(session, "phantom"), requests=3), section="steps", input="phantom", stack=stack.name)
        server.set_verbose(0)
        # Without the first request, as everywhere: while it is answered the client's memory gets its pages.
        found[stack.name] = mean_of_steps(read_steps(notes, already)[1:])
    session.results["steps"] = found


def read_steps(notes: Path, start: int) -> list[dict[str, float]]:
    """Milliseconds by step, a dictionary for each request: from the Python model's file, or from the server's log."""
    text = notes.read_bytes()[start:].decode(errors="replace")
    if notes.suffix == ".jsonl":
        return [{step: s * 1000 for step, s in json.loads(line).items()} for line in text.splitlines()]
    lines = re.findall(r"\bsteps((?: \w+=[0-9.]+)+) ms", text)
    return [{step: float(ms) for step, ms in (pair.split("=") for pair in line.split())} for line in lines]


def mean_of_steps(requests: list[dict[str, float]]) -> dict[str, float]:
    return {step: float(np.mean([r[step] for r in requests])) for step in (requests[0] if requests else ())}


def own_load(session: Session) -> None:
    """How long spleen_seg itself takes to load into a server that has the network already."""
    for stack in (RUST, PYTHON):
        name = f"{stack.name}_load"
        server = session.start(name, stack, options=("--model-control-mode=explicit", f"--load-model={NETWORK}"))
        for _ in range(session.settings.load_repeats):
            seconds = server.load(SPLEEN)
            session.results["ready"].append({"stack": stack.name, "model": SPLEEN, "seconds": seconds})
            session.say(f"{stack.title}: {SPLEEN} loaded in {seconds:.2f} s")
            server.unload(SPLEEN)
        session.stop(name)

"""The targets that were set for this project, and what this run has measured."""

from __future__ import annotations

from dataclasses import dataclass

from . import summary
from .settings import LONGEST
from .repositories import SPLEEN
from .summary import Spread


@dataclass(frozen=True)
class Target:
    text: str
    wanted: str
    measured: str
    met: bool | None  # None: not measured in this run
    by: float = 0.0  # what a missed target is missed by, as a share of the limit


def at_most(text: str, limit: float, value: Spread | None, digits: int = 2, unit: str = "") -> Target:
    wanted = f"at most {limit:g}{unit}"
    if value is None:
        return Target(text, wanted, "not measured", None)
    return Target(text, wanted, value.text(digits, unit), value.middle <= limit, value.middle / limit - 1)


def at_least(text: str, limit: float, value: Spread | None, digits: int = 2, unit: str = "") -> Target:
    wanted = f"at least {limit:g}{unit}"
    if value is None:
        return Target(text, wanted, "not measured", None)
    return Target(text, wanted, value.text(digits, unit), value.middle >= limit, 1 - value.middle / limit)


def inputs(results: dict) -> dict[str, dict]:
    """The labels that select the runs in shared memory of each input."""
    found = {"zero": {"section": "headline", "input": "zero", "transport": "shm"}}
    found.update({name: {"section": "inputs", "input": name} for name in ("phantom", "noise")})
    return {name: labels for name, labels in found.items() if summary.runs(results, **labels)}


def evaluate(results: dict) -> list[Target]:
    return [
        *_speed(results),
        *_whole_request(results),
        *_memory(results),
        _ready(results),
        *_throughput(results),
    ]


def _speed(results: dict) -> list[Target]:
    found = inputs(results)
    copy = summary.yardstick(results).middle
    targets = []
    for name, limit in (("zero", 4), ("phantom", 4), ("noise", 10)):
        times = summary.by_round(results, summary.around, **found[name], stack="rust") if name in found else {}
        value = Spread.of([ms / copy for ms in times.values()])
        targets.append(at_most(f"compute_input + compute_output in copies of INPUT0, {name}", limit, value))
    for name in ("zero", "phantom", "noise"):
        value = None
        if name in found:
            ours, theirs = (summary.by_round(results, summary.pipeline, **found[name], stack=s) for s in ("rust", "python"))
            value = summary.ratio(theirs, ours)
        targets.append(at_least(f"everything but the network, times faster than Python and MONAI, {name}", 50, value, 1))
    return targets


def whole_request(results: dict, transport: str = "shm") -> dict[str, Spread]:
    """How many times faster a whole request is, than either Python stack."""
    labels = {"section": "headline", "transport": transport}
    ours = summary.by_round(results, summary.latency, **labels, stack="rust")
    stacks = ("python", "python_whole")
    ratios = {s: summary.ratio(summary.by_round(results, summary.latency, **labels, stack=s), ours) for s in stacks}
    return {stack: value for stack, value in ratios.items() if value}


def less_flattering(ratios: dict[str, Spread]) -> tuple[str, Spread] | None:
    """Where the stacks differ in more than the pipeline, the smaller ratio is the headline."""
    return min(ratios.items(), key=lambda item: item[1].middle) if ratios else None


def _whole_request(results: dict) -> list[Target]:
    alone = summary.by_round(results, summary.latency, section="alone", input="zero")
    ours = summary.by_round(results, summary.latency, section="headline", transport="shm", stack="rust")
    return [
        at_least("whole request, times faster than the Python stack", 2.5, whole_request(results).get("python_whole")),
        at_most("whole request, in times of the network alone", 1.05, summary.ratio(ours, alone), 3),
    ]


def _memory(results: dict) -> list[Target]:
    peaks = {entry["stack"]: entry["peak_mb"] for entry in results["memory"]}
    more = Spread.of([peaks["rust"] - peaks["network"]]) if {"rust", "network"} <= peaks.keys() else None
    rest = [entry["rest_mb"] for entry in results.get("soak", [])]
    # The first part warms up; after it memory at rest must not move by more than a part of a volume.
    risen = Spread.of([max(rest[1:]) - rest[0]]) if len(rest) > 2 else None
    requests = results["soak"][-1]["requests"] if rest else 500
    targets = [
        at_most("peak RssAnon beyond the server with the network alone", 200, more, 0, " MB"),
        at_most(f"rise of RssAnon at rest over {requests} requests", 16, risen, 1, " MB"),
    ]
    long, usual = (
        summary.runs(results, section="growth", stack="rust", slices=slices) for slices in (LONGEST, 114)
    )
    extra = Spread.of([max(r["peak_mb"] for r in long) - max(r["peak_mb"] for r in usual)]) if long and usual else None
    targets.append(at_most(f"peak RssAnon at {LONGEST} slices (1 GB) beyond that at 114", 100, extra, 0, " MB"))
    targets.append(at_most(f"time for a slice at {LONGEST} slices, in that at 600 (300)", 1.2, _linearity(results)))
    return targets


def _linearity(results: dict) -> Spread | None:
    """Whether compute_input grows no faster than the volume."""
    def for_a_slice(slices: int) -> dict[int, float]:
        labels = {"section": "growth", "stack": "rust", "slices": slices}
        return summary.by_round(results, lambda run: run["statistics"][SPLEEN]["compute_input_ms"] / slices, **labels)

    return summary.ratio(for_a_slice(LONGEST), for_a_slice(600) or for_a_slice(300))


def _ready(results: dict) -> Target:
    own = [entry["seconds"] for entry in results["ready"] if entry["stack"] == "rust" and entry.get("model") == SPLEEN]
    return at_most("spleen_seg's own load", 1, Spread.of(own), 2, " s")


def _throughput(results: dict) -> list[Target]:
    targets = []
    for instances, text in ((2, "two instances of each model"), (1, "one instance, requests queue")):
        labels = {"section": "concurrency", "stack": "rust", "instances": instances}
        ours = summary.by_round(results, summary.throughput, **labels, model=SPLEEN)
        alone = summary.by_round(results, summary.throughput, **labels, model="segmentation_3d")
        targets.append(at_least(f"throughput in that of the network alone, 4 clients, {text}", 1, summary.ratio(ours, alone), 3))
    return targets

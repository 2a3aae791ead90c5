"""Figures from the recorded runs. A ratio is taken within each round, between runs that followed each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from .repositories import NETWORK, SPLEEN
from .statistics import before_and_after_ms, compute_ms


@dataclass(frozen=True)
class Spread:
    """The median over the rounds, with the smallest and the largest."""

    middle: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread | None:
        return Spread(median(values), min(values), max(values)) if values else None

    def text(self, digits: int = 0, unit: str = "") -> str:
        a, b, c = (f"{value:,.{digits}f}" for value in (self.middle, self.low, self.high))
        return f"{a}{unit} ({b}..{c})"


def runs(results: dict, **labels) -> list[dict]:
    """The runs that carry all of these labels."""
    return [run for run in results["runs"] if all(run.get(key) == value for key, value in labels.items())]


Figure = Callable[[dict], float]


def by_round(results: dict, figure: Figure, **labels) -> dict[int, float]:
    return {run["round"]: figure(run) for run in runs(results, **labels)}


def spread(results: dict, figure: Figure, **labels) -> Spread | None:
    return Spread.of(list(by_round(results, figure, **labels).values()))


def ratio(above: dict[int, float], below: dict[int, float]) -> Spread | None:
    """The spread of the ratios over the rounds that both have."""
    return Spread.of([above[r] / below[r] for r in sorted(above.keys() & below.keys())])


def client(key: str) -> Figure:
    return lambda run: run["client"][key]


def latency(run: dict) -> float:
    return run["client"]["latency_ms"]


def throughput(run: dict) -> float:
    return run["client"]["throughput"]


def pipeline(run: dict) -> float:
    """Everything but the network, counted alike for every stack: the request's compute time less the network's own."""
    return before_and_after_ms(run["statistics"][SPLEEN], run["statistics"][NETWORK])


def around(run: dict) -> float:
    """compute_input + compute_output as the backend reports them; only meaningful where the network is in compute_infer
    alone, so for this backend."""
    stats = run["statistics"][SPLEEN]
    return stats["compute_input_ms"] + stats["compute_output_ms"]


def call_overhead(run: dict) -> float:
    """What the in-process call costs beyond the network's own time."""
    return run["statistics"][SPLEEN]["compute_infer_ms"] - run["statistics"][NETWORK]["server_ms"]


def compute(run: dict) -> float:
    return compute_ms(run["statistics"][SPLEEN])


def network(run: dict) -> float:
    return run["statistics"][NETWORK]["server_ms"]


def yardstick(results: dict) -> Spread:
    return Spread.of([entry["ms"] for entry in results["yardstick"]])


def yardstick_by_round(results: dict) -> dict[int, float]:
    return {entry["round"]: entry["ms"] for entry in results["yardstick"]}

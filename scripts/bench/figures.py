"""Which pictures the report has: file, title, and whether the results hold what it shows."""

from __future__ import annotations

from . import summary

FIGURES = (
    ("latency.svg", "Latency of a whole request", lambda results: bool(summary.runs(results, section="headline"))),
    ("processing.svg", "Everything but the network", lambda results: bool(summary.runs(results, section="headline"))),
    ("steps.svg", "Step by step", lambda results: any(results.get("steps", {}).values())),
    ("growth.svg", "Growth with the number of slices", lambda results: bool(summary.runs(results, section="growth"))),
    ("memory.svg", "Peak memory", lambda results: bool(results["memory"])),
)


def shown(results: dict) -> list[tuple[str, str]]:
    return [(name, title) for name, title, has in FIGURES if has(results)]

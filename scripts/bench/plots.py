"""Pictures of the results. Runs in an environment of its own: python -m bench.plots RESULTS.json FOLDER"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

from . import summary  # noqa: E402
from .figures import FIGURES  # noqa: E402
from .repositories import STACKS  # noqa: E402

COLOURS = {"python": "#8a8f98", "python_whole": "#bfc3c9", "rust": "#c4572a"}
STACK_ORDER = ("python_whole", "python", "rust")
# Text stays text, and the file is the same for the same numbers.
plt.rcParams.update(
    {"svg.fonttype": "none", "svg.hashsalt": "spleenseg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
)


def bars_with_spread(axes, position: float, value: summary.Spread, colour: str, label: str | None) -> None:
    errors = [[value.middle - value.low], [value.high - value.middle]]
    axes.barh(position, value.middle, 0.26, color=colour, label=label, xerr=errors, ecolor="#333333", capsize=2)
    axes.annotate(f" {value.middle:,.0f}", (value.high, position), va="center", fontsize=9)


def latency(results: dict):
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    transports = {"grpc": "gRPC", "http": "HTTP", "shm": "shared\nmemory"}
    for row, transport in enumerate(transports):
        for place, stack in enumerate(STACK_ORDER):
            value = summary.spread(results, summary.latency, section="headline", transport=transport, stack=stack)
            if value:
                bars_with_spread(axes, row + 0.28 * (1 - place), value, COLOURS[stack], STACKS[stack].title if row == 0 else None)
    alone = summary.spread(results, summary.latency, section="alone", input="zero")
    if alone:
        axes.axvline(alone.middle, color="#333333", linewidth=1, linestyle=":", label="the network alone")
    axes.set_yticks(range(len(transports)), transports.values())
    axes.set_xlabel("latency of one 512x512x114 volume, ms")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def processing(results: dict):
    from .targets import inputs

    found = inputs(results)
    figure, axes = plt.subplots(figsize=(8, 3.0), layout="constrained")
    for row, (name, labels) in enumerate(reversed(found.items())):
        for place, stack in enumerate(("python", "rust")):
            value = summary.spread(results, summary.pipeline, **labels, stack=stack)
            if value:
                bars_with_spread(axes, row + 0.28 * (0.5 - place), value, COLOURS[stack], STACKS[stack].title if row == 0 else None)
    copy = summary.yardstick(results).middle
    axes.axvline(copy, color="#333333", linewidth=1, linestyle=":", label="one copy of INPUT0")
    axes.set_xscale("log")
    axes.set_xlim(left=5)
    axes.set_yticks(range(len(found)), list(reversed(found)))
    axes.set_xlabel("everything but the network, ms (logarithmic)")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def growth(results: dict):
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for stack in ("python", "rust"):
        sizes = sorted({run["slices"] for run in summary.runs(results, section="growth", stack=stack)})
        values = [summary.spread(results, summary.pipeline, section="growth", slices=s, stack=stack) for s in sizes]
        middles = [v.middle for v in values]
        errors = [[v.middle - v.low for v in values], [v.high - v.middle for v in values]]
        axes.errorbar(sizes, middles, errors, marker="o", color=COLOURS[stack], label=STACKS[stack].title, capsize=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=10)
    axes.set_xlabel("slices of 512x512")
    axes.set_ylabel("everything but the network, ms")
    axes.legend(frameon=False)
    return figure


def memory(results: dict):
    figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
    entries = results["memory"][::-1]
    for row, entry in enumerate(entries):
        shared = entry["python_backend_shm_mb"]
        colour = COLOURS.get(entry["stack"], "#5b7d9e")
        axes.barh(row, entry["peak_mb"], color=colour)
        axes.barh(row, shared, left=entry["peak_mb"], color=colour, alpha=0.45, hatch="//")
        beside = f" + {shared:,.0f} shared" if shared > 1 else ""
        axes.annotate(f" {entry['peak_mb']:,.0f}{beside}", (entry["peak_mb"] + shared, row), va="center", fontsize=9)
    axes.set_yticks(range(len(entries)), [STACKS[entry["stack"]].title for entry in entries])
    axes.margins(x=0.2)
    axes.set_xlabel("peak RssAnon, MB; hatched: shared memory of the Python backend")
    return figure


def steps(results: dict):
    shown = {
        stack: {step: ms for step, ms in results["steps"].get(stack, {}).items() if step != "network"} for stack in ("rust", "python")
    }
    longest = max(sum(times.values()) for times in shown.values())
    # A step has the same colour in both bars.
    names = list(dict.fromkeys(step for times in shown.values() for step in times))
    figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
    for row, times in enumerate(shown.values()):
        left = 0.0
        for step, ms in times.items():
            colour = plt.get_cmap("tab20")(names.index(step) % 20)
            axes.barh(row, ms, 0.6, left=left, color=colour, label=step if row == 1 or step not in shown["python"] else None)
            if ms > 0.05 * longest:
                axes.annotate(f"{ms:,.0f}", (left + ms / 2, row), ha="center", va="center", fontsize=8)
            left += ms
        axes.annotate(f" {left:,.0f}", (left, row), va="center", fontsize=9)
    axes.set_yticks((0, 1), [STACKS[stack].title for stack in shown])
    axes.set_xlabel("steps around the network, phantom, ms")
    figure.legend(loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def main(source: str, folder: str) -> int:
    results = json.loads(Path(source).read_text())
    for name, _title, section in FIGURES:
        if section(results):
            figure = globals()[Path(name).stem](results)
            figure.savefig(Path(folder) / name, metadata={"Date": None})
            plt.close(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The headline tables of the project's README, written from the results."""

from __future__ import annotations

import re
from pathlib import Path

from . import summary, targets
from .repositories import SPLEEN
from .report import TRANSPORT_TITLES, network_times
from .summary import Spread, latency, spread
from .tables import table, text

BEGIN, END = "<!-- scripts/bench.sh writes this part -->", "<!-- until here -->"


def update(page: Path, results: dict) -> None:
    """Replaces the part between the marks."""
    before = page.read_text()
    pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    if not re.search(pattern, before, re.DOTALL):
        raise RuntimeError(f"{page} has no part between '{BEGIN}' and '{END}'")
    page.write_text(re.sub(pattern, lambda _: f"{BEGIN}\n{headline(results)}\n{END}", before, flags=re.DOTALL))


def headline(results: dict) -> str:
    made, machine = results["made"], results["machine"]
    busy = " **on a busy machine**" if made["load_average"] > made["busy_above"] else ""
    missed = [target for target in targets.evaluate(results) if target.met is False]
    verdict = f"{len(missed)} of {len(targets.evaluate(results))} targets are missed" if missed else "All targets are met"
    return "\n".join(
        [
            f"Stock Triton {machine['Triton']} on {machine['cores']} cores of an {machine['processor'].replace('(R)', '').replace(' Processor', '')}, "
            "512x512x114 FP32, the tutorial's UNet with random weights, against the",
            f"same pipeline as MONAI {machine['monai']} transforms on the Python backend; median and spread over the rounds of one run of "
            f"`{made['command']}`{busy}. {verdict}:",
            "[by how much and why](docs/benchmarks/README.md#targets).",
            "",
            table(["latency of a whole request, ms", "Python backend, the faster of two stacks", "this backend", "times faster"], _requests(results)),
            "",
            f"Most of each is the network: {network_times(results)}. What lies around it:",
            "",
            table(["", "Python backend", "this backend", "times better"], _around(results)),
        ]
    )


def _requests(results: dict) -> list[list[str]]:
    rows = []
    for transport, title in TRANSPORT_TITLES.items():
        labels = {"section": "headline", "transport": transport}
        best = targets.less_flattering(targets.whole_request(results, transport))
        if best:
            theirs, ours = (text(spread(results, latency, **labels, stack=stack)) for stack in (best[0], "rust"))
            rows.append([title, theirs, ours, text(best[1], 2)])
    return rows


def _around(results: dict) -> list[list[str]]:
    rows = []
    for name, labels in targets.inputs(results).items():
        if name == "noise":
            continue
        ours, theirs = (summary.by_round(results, summary.pipeline, **labels, stack=stack) for stack in ("rust", "python"))
        spreads = (Spread.of(list(times.values())) for times in (theirs, ours))
        rows.append([f"everything but the network, {name} volume, ms", *map(text, spreads), text(summary.ratio(theirs, ours), 1)])
    peaks = {entry["stack"]: entry["peak_mb"] for entry in results["memory"]}
    ready = {entry["stack"]: entry["seconds"] for entry in results["ready"] if entry.get("model") != SPLEEN}
    for title, digits, values in (("peak anonymous memory, MB", 0, peaks), ("server and both models ready, s", 1, ready)):
        theirs, ours = min(values[stack] for stack in ("python", "python_whole") if stack in values), values["rust"]
        rows.append([title, f"{theirs:,.{digits}f}", f"{ours:,.{digits}f}", f"{theirs / ours:.1f}"])
    return rows

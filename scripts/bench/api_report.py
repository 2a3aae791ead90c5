"""docs/benchmarks/api.md from the recorded results, and nothing else."""

from __future__ import annotations

import statistics

from .tables import table

BUSY_ABOVE = 0.5  # load average for each core at the start
TITLES = {"rust": "Rust, this crate", "python": "Python backend"}


def middle(values: list[float], digits: int = 1) -> str:
    if not values:
        return "not measured"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def of(records: list[dict], field: str, **labels) -> list[float]:
    """In the order of the rounds."""
    found = [r for r in records if all(r[key] == value for key, value in labels.items())]
    return [r[field] for r in sorted(found, key=lambda r: r["round"])]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Round by round, so that what the machine did in a round falls on both."""
    return [a / b for a, b in zip(above, below)]


def write(results: dict) -> str:
    made, cores = results["made"], int(results["machine"]["cores"])
    parts = ["# What triton_backend_api costs"]
    if made["load_average"] > BUSY_ABOVE * cores:
        parts.append(
            f"> **The machine was busy** (load average {made['load_average']:.1f} on {cores} cores at the start): these figures only "
            "show that the benchmark works."
        )
    parts += [
        f"Measured on {made['date']} with `{made['command']}`. Medians over the rounds, the smallest and the largest in parentheses. Ratios are "
        "taken within a round.",
        table(["", "measured on"], [[key, value] for key, value in results["machine"].items()]).replace("---:", "---"),
        "## Beside a minimal backend in C",
        _cost(results["cost"]),
        "## Beside the Python backend",
        _identity(results["identity"]),
        "Requests a second by perf_analyzer over HTTP, beside bare health requests, the front end's ceiling:",
        _throughput(results),
        "## One request on several threads",
        _threads(results["threads"]),
        "## How it was measured",
        METHOD,
    ]
    return "\n\n".join(parts) + "\n"


def _cost(cost: list[dict]) -> str:
    rows = [
        [f"{c['bytes']:,}", f"{c['yardstick_ns'] / 1000:.2f}", f"{c['subject_ns'] / 1000:.2f}", f"{c['added_ns'] / 1000:.2f}"]
        for c in cost
    ]
    added = cost[0]["added_ns"] / 1000
    verdict = "met" if added <= 3 else "**missed**"
    return (
        table(["bytes of the input", "C, us", "Rust `identity`, us", "added, us"], rows)
        + f"\n\nAimed at: at most 3 us for an empty request: {added:.2f}, {verdict}. Both under `triton_fake_host`, whose own part of a request is "
        "in both figures and not in their difference; the ledger makes its calls slower than a server's."
    )


def _identity(records: list[dict]) -> str:
    rows = [
        [TITLES[stack], *(middle(of(records, "compute_us", stack=stack, concurrency=n)) for n in (1, 16))] for stack in TITLES
    ]
    found = ratios(*(of(records, "compute_us", stack=stack, concurrency=1) for stack in ("python", "rust")))
    verdict = "met" if statistics.median(found) >= 20 else "**missed**"
    return (
        table(["compute_input + infer + output of `identity`, us", "1 at once", "16 at once"], rows)
        + f"\n\nAimed at: at least 20 times less at 1 at once: {middle(found)}, {verdict}."
    )


def _throughput(results: dict) -> str:
    rows = [
        [TITLES[stack], *(middle(of(results["identity"], "per_second", stack=stack, concurrency=n), 0) for n in (1, 16))]
        for stack in TITLES
    ]
    rows.append(["health", *(middle(of(results["health"], "per_second", concurrency=n), 0) for n in (1, 16))])
    return table(["requests a second", "1 at once", "16 at once"], rows)


def _threads(records: list[dict]) -> str:
    counts = sorted({r["threads"] for r in records})
    rows = []
    for stack, title in TITLES.items():
        times = {n: [us / 1000 for us in of(records, "compute_us", stack=stack, threads=n)] for n in counts}
        rows.append([title, *(middle(times[n]) for n in counts), middle(ratios(times[counts[0]], times[counts[-1]]), 2)])
    return table(["compute time of `threads`, ms", *(f"threads: {n}" for n in counts), "times faster"], rows)


METHOD = """- `cost` (`triton_backend_api/fake_host/benches`) loads both libraries into one process and lets them take turns, request by request in blocks.
- `benches/identity_c` is a minimal backend in C with statistics; `benches/python_backend/identity` and `threads` are the same models in Python.
- On stock Triton the server's own statistics count: what a request costs between the server's call of the backend and its answer.
- `threads` computes the same steps in both languages; the Python backend's threads share the interpreter lock. The distance between
  the languages is mostly that between an interpreter and compiled code; the column `times faster` is what threads give within one language.
- Health requests come from Python processes over raw sockets, one for each connection, which share the cores with the server as
  perf_analyzer does.
"""

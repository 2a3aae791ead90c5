"""The detailed tables of the report."""

from __future__ import annotations

from . import summary
from .repositories import NETWORK, SPLEEN, STACKS
from .summary import Spread, client, runs, spread
from .tables import NOT_MEASURED, middle, table, text

PHASES = ("queue", "compute_input", "compute_infer", "compute_output")


def tutorial_tables(results: dict) -> str:
    """What perf_analyzer reports for each transport, as the tutorial lists it."""
    parts = []
    for transport, title, transfer in (
        ("http", "HTTP", "send/receive"),
        ("grpc", "gRPC", "marshalling"),
        ("shm", "System shared memory", "send/receive"),
    ):
        rows = []
        for stack in ("python", "python_whole", "rust"):
            labels = {"section": "headline", "transport": transport, "stack": stack}
            figures = ["latency_ms", "throughput", "transfer_ms", "wait_ms", *(f"{phase}_ms" for phase in PHASES)]
            digits = {"throughput": 3}
            cells = [middle(spread(results, client(key), **labels), digits.get(key, 1)) for key in figures]
            rows.append([STACKS[stack].title, *cells])
        head = ["", "latency, ms", "requests/s", transfer, "response wait", "queue", *(p.replace("_", " ") for p in PHASES[1:])]
        parts.append(f"{title}:\n\n{table(head, rows)}")
    note = (
        "The Python backend counts everything inside `execute()` as compute infer: its steps and the network together. Here "
        "compute infer is the network alone, compute input what comes before it and compute output what comes after. The "
        f"in-process call itself costs {text(spread(results, summary.call_overhead, section='headline', transport='shm', stack='rust'), 1, ' ms')} "
        "beyond the network's own time."
    )
    return "\n\n".join([*parts, note])


def steps(results: dict) -> str:
    found = results.get("steps", {})
    if not any(found.values()):
        return NOT_MEASURED
    parts = []
    for stack in ("python", "rust"):
        rows = [[step, f"{ms:,.1f}"] for step, ms in found.get(stack, {}).items()]
        if rows:
            parts.append(f"{STACKS[stack].title}, phantom:\n\n{table(['step', 'ms'], rows)}")
    return "\n\n".join(parts)


def growth(results: dict) -> str:
    sizes = sorted({run["slices"] for run in runs(results, section="growth")})
    if not sizes:
        return NOT_MEASURED
    rows = []
    for slices in sizes:
        labels = {"section": "growth", "slices": slices}
        ours, theirs = (summary.by_round(results, summary.pipeline, **labels, stack=s) for s in ("rust", "python"))
        before = spread(results, lambda run: run["statistics"][SPLEEN]["compute_input_ms"], **labels, stack="rust")
        peak = [run["peak_mb"] for run in runs(results, **labels, stack="rust")]
        rows.append(
            [
                f"{slices} ({512 * 512 * slices * 4 / 1e6:,.0f} MB)",
                text(Spread.of(list(theirs.values()))) if theirs else "",
                text(Spread.of(list(ours.values())), 1),
                text(summary.ratio(theirs, ours), 1) if theirs else "",
                text(before, 1),
                f"{max(peak):,.0f}",
            ]
        )
    head = ["slices", "Python backend, ms", "this backend, ms", "times faster", "of which compute input, ms", "peak RssAnon, MB"]
    return f"Everything but the network, phantom in system shared memory. The last two columns are this backend's.\n\n{table(head, rows)}"


def concurrency(results: dict) -> str:
    rows = []
    for instances in (1, 2):
        for stack in ("rust", "python_whole"):
            labels = {"section": "concurrency", "stack": stack, "instances": instances}
            ours = summary.by_round(results, summary.throughput, **labels, model=SPLEEN)
            alone = summary.by_round(results, summary.throughput, **labels, model=NETWORK)
            if ours:
                share = text(summary.ratio(ours, alone), 3) if alone else ""
                alone_text = text(Spread.of(list(alone.values())), 3) if alone else ""
                rows.append([f"{instances} of each model, {STACKS[stack].title}", text(Spread.of(list(ours.values())), 3), alone_text, share])
    if not rows:
        return NOT_MEASURED
    head = ["four clients; instances", "requests/s", "network alone, requests/s", "share of it"]
    return table(head, rows)


def memory(results: dict) -> str:
    rows = []
    for entry in results["memory"]:
        rows.append(
            [
                STACKS[entry["stack"]].title,
                str(entry["processes"]),
                f"{entry['idle_mb']:,.0f}",
                f"{entry['peak_mb']:,.0f}",
                f"{entry['python_backend_shm_mb']:,.0f}",
            ]
        )
    parts = [table(["memory, MB", "processes", "RssAnon when ready", "peak RssAnon", "shared memory of the Python backend, reserved"], rows)]
    ready = []
    for stack, title in ((name, s.title) for name, s in STACKS.items()):
        whole = [e["seconds"] for e in results["ready"] if e["stack"] == stack and "model" not in e]
        own = [e["seconds"] for e in results["ready"] if e["stack"] == stack and e.get("model") == SPLEEN]
        if whole or own:
            ready.append([title, text(Spread.of(whole), 1), text(Spread.of(own), 2)])
    parts.append(table(["readiness, s", "server with its models", "spleen_seg's own load"], ready))
    if soak := results.get("soak"):
        rows = [[f"{e['requests']:,}", f"{e['rest_mb']:,.1f}", f"{e['peak_mb']:,.1f}"] for e in soak]
        parts.append(f"Over many requests:\n\n{table(['requests', 'RssAnon at rest, MB', 'peak RssAnon, MB'], rows)}")
    return "\n\n".join(parts)


def equality(results: dict) -> str:
    rows = []
    for entry in results["equality"]:
        counts = [f"{entry['voxels'][name]:,} set, {entry['differing'][name]} differ" for name in ("MASK", "CONTOUR")]
        rows.append([f"{entry['input']}, {STACKS[entry['stack']].title}", *counts])
    text_below = "Compared with this backend, of 11,239,424 voxels. Scores that lie closer together than float rounding can flip."
    if "noise_components" in results:
        text_below += (
            f" The noise input has {results['noise_components']:,} components of {results['noise_voxels']:,} voxels together "
            "before the largest is kept."
        )
    return f"{table(['', 'MASK', 'CONTOUR'], rows)}\n\n{text_below}"

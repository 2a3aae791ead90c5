"""The report: Markdown from the recorded results, and nothing else."""

from __future__ import annotations

from . import breakdown, reasons, summary, targets
from .repositories import NETWORK, SPLEEN, STACKS
from .summary import latency, spread
from .tables import table, text

TRANSPORT_TITLES = {"shm": "system shared memory", "http": "HTTP", "grpc": "gRPC"}
STACK_ORDER = ("python", "python_whole", "rust")

# What MONAI's tutorial on the full GPU inference pipeline published for the pipeline that this project replaces: one
# RTX 8000, latencies in milliseconds.
PUBLISHED = {"http": 517, "grpc": 564, "shm": 252}
PUBLISHED_PROCESSING = {"on the GPU": 252, "on the CPU": 3078}


def write(results: dict, figures: list[tuple[str, str]], notes: str = "") -> str:
    """`notes` are what a person has to say about these results beside what follows from the figures."""
    parts = [
        "# Benchmarks",
        _made(results),
        "## A whole request",
        _headline(results),
        "## Everything but the network, and what it takes to run",
        _processing(results),
        *(f"![{title}]({name})" for name, title in figures),
        "## Targets",
        _targets(results),
        *(part.strip() for part in (reasons.write(results), notes) if part.strip()),
        "## Where the time goes",
        breakdown.tutorial_tables(results),
        "## Step by step",
        breakdown.steps(results),
        "## Growth with the number of slices",
        breakdown.growth(results),
        "## Several clients at once",
        breakdown.concurrency(results),
        "## Memory and readiness",
        breakdown.memory(results),
        "## The same answers",
        breakdown.equality(results),
        "## How it was measured",
        METHOD,
    ]
    return "\n\n".join(parts) + "\n"


def _made(results: dict) -> str:
    made = results["made"]
    lines = [
        f"Measured on {made['date']} with `{made['command']}`, in {made['seconds']:.0f} s. Every figure is the median over the "
        "rounds, with the smallest and the largest in parentheses. One request is one 512x512x114 FP32 volume unless it says "
        "otherwise. What the server's statistics say leaves out the first request of each run: while it is answered, the client's "
        "shared memory gets its pages.",
        "",
        table(["", "measured on"], [[key, value] for key, value in results["machine"].items()]).replace("---:", "---"),
    ]
    if made["load_average"] > made["busy_above"]:
        lines[:0] = [
            f"> **The machine was busy** (load average {made['load_average']:.1f} at the start): these figures only show that "
            "the benchmark works.",
            "",
        ]
    for key, said in (("left_out", "Left out for lack of time"), ("failed", "**Failed**")):
        if results[key]:
            lines += ["", f"{said}: {', '.join(results[key])}."]
    return "\n".join(lines)


def _headline(results: dict) -> str:
    rows = []
    for transport, title in TRANSPORT_TITLES.items():
        labels = {"section": "headline", "transport": transport}
        times = [text(spread(results, latency, **labels, stack=stack)) for stack in STACK_ORDER]
        best = targets.less_flattering(targets.whole_request(results, transport))
        rows.append([title, *times, text(best[1] if best else None, 2), f"{PUBLISHED[transport]}"])
    head = ["latency, ms", *(STACKS[stack].title for stack in STACK_ORDER), "times faster", "published, RTX 8000"]
    return (
        f"{table(head, rows)}\n\n"
        "`times faster` compares with whichever Python stack is the faster one. Both stacks of the first and the last column "
        f"call the same network: {network_times(results)}. What can be saved lies around it. The last column is what the tutorial that this project replaces published for the Python backend with all "
        "steps and the network on a GPU; it shows the proportions, not a comparison."
    )


def network_times(results: dict) -> str:
    """The network's share of a whole request, and what it takes when called alone."""
    inside = text(spread(results, summary.network, section="headline", transport="shm", stack="rust"), unit=" ms")
    alone = text(spread(results, latency, section="alone", input="zero"), unit=" ms")
    return f"{inside} within this backend's requests over shared memory; called alone, in measurements of its own between these, {alone}"


def _processing(results: dict) -> str:
    found = targets.inputs(results)
    rows = []
    for name, labels in found.items():
        ours, theirs = (summary.by_round(results, summary.pipeline, **labels, stack=s) for s in ("rust", "python"))
        copies = summary.by_round(results, summary.around, **labels, stack="rust")
        copy = summary.yardstick(results).middle
        rows.append(
            [
                f"everything but the network, {name} volume, ms",
                text(summary.Spread.of(list(theirs.values()))),
                text(summary.Spread.of(list(ours.values()))),
                text(summary.ratio(theirs, ours), 1),
                text(summary.Spread.of([ms / copy for ms in copies.values()]), 2),
            ]
        )
    peaks = {entry["stack"]: entry["peak_mb"] for entry in results["memory"]}
    ready = {entry["stack"]: entry["seconds"] for entry in results["ready"] if "model" not in entry}
    for title, digits, values in (("peak RssAnon, MB", 0, peaks), ("server and both models ready, s", 1, ready)):
        # Of the two Python stacks the better one.
        theirs, ours = (
            min((values[stack] for stack in stacks if stack in values), default=None)
            for stacks in (("python", "python_whole"), ("rust",))
        )
        if theirs and ours:
            rows.append([title, f"{theirs:,.{digits}f}", f"{ours:,.{digits}f}", f"{theirs / ours:.1f}", ""])
    published = ", ".join(f"{ms:,} ms {where}" for where, ms in PUBLISHED_PROCESSING.items())
    return (
        f"{table(['', 'Python backend', 'this backend', 'times better', 'in copies of INPUT0'], rows)}\n\n"
        f"A copy of INPUT0 from memory to memory with 2 threads took {text(summary.yardstick(results), 1, ' ms')} in the same "
        f"run. The tutorial published, for its pipeline with pre- and post-processing on a GPU and on a CPU: {published}."
    )


def _targets(results: dict) -> str:
    rows = [[t.text, t.wanted, t.measured, _verdict(t)] for t in targets.evaluate(results)]
    return table(["target", "wanted", "measured", ""], rows)


def _verdict(target: targets.Target) -> str:
    if target.met is None:
        return "-"
    return "met" if target.met else f"**missed** by {target.by:.1%}"


METHOD = f"""- Stock Triton serves `{SPLEEN}` and `{NETWORK}` on CPU instances; perf_analyzer sends the requests. All stacks stay up and take
  turns, so that whatever else the machine does falls on all of them; every other round goes backwards. A ratio is taken
  within each round. `THP_MEM_ALLOC_ENABLE=1` is set for all of them, as `scripts/serve.sh` sets it: torch asks for huge pages, in
  the server and in the Python backend's processes.
- The Python pipeline (`benches/python_backend`) runs MONAI's transforms on all cores with the same parameters, types and
  network, and the fixes that make it faster without changing what it computes. Its answers are compared with ours before
  anything is timed.
- "Everything but the network" is counted alike for both: the request's compute time in Triton's statistics of `{SPLEEN}`,
  less the time of the request that `{NETWORK}` got for it. For Python it holds the copies to and from the stub process.
- The copy is NumPy's, that is the C library's memcpy, on pages that are already there: the fastest of 15, before each round.
- RssAnon is summed over the server and its stub processes, every 20 ms, from readiness over the first requests. The client's
  shared memory is not in it, and neither is the Python backend's own, listed beside it: reserved as large as its
  documentation asks for.
- Growth, noise and the many requests use a network that only compares with a threshold, so that the other steps can be seen.
"""


def console(results: dict) -> str:
    """The short version, for the terminal."""
    return "\n\n".join([_headline(results).split("\n\n")[0], _processing(results).split("\n\n")[0], _targets(results)])



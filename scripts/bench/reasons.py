"""Why targets were missed: the parts of what was measured, beside the least that they could be."""

from __future__ import annotations

from . import summary, targets
from .repositories import NETWORK, SPLEEN
from .summary import Spread, latency, spread

# Bytes of one request: INPUT0, the network's input, its answer, and MASK with CONTOUR.
GRID = 224**3
INPUT0, RESIZED, SCORES, OUTPUTS = 512 * 512 * 114 * 4, GRID * 4, GRID * 2 * 4, GRID * 2 * 4


def write(results: dict) -> str:
    """One paragraph for each kind of missed target; nothing where all are met."""
    missed = [target.text for target in targets.evaluate(results) if target.met is False]
    said = [
        reason
        for word, explain in (("copies of INPUT0", _copies), ("than Python and MONAI", _python), ("whole request", _request), ("beyond the server", _memory), ("throughput", _throughput))
        if any(word in text for text in missed) and (reason := explain(results))
    ]
    return "\n".join(["Why targets are missed:", "", *(f"- {reason}" for reason in said)]) if said else ""


def _floor_ms(results: dict) -> float:
    """Reading INPUT0 and the answer once, writing the network's input and the outputs once, as fast as the copy, which reads and writes INPUT0."""
    return summary.yardstick(results).middle * (INPUT0 + RESIZED + SCORES + OUTPUTS) / (2 * INPUT0)


def _copies(results: dict) -> str:
    floor = _floor_ms(results)
    steps = {step: ms for step, ms in results.get("steps", {}).get("rust", {}).items() if step != "network"}
    largest = ", ".join(f"{step} {ms:.1f}" for step, ms in sorted(steps.items(), key=lambda item: -item[1]))
    by_step = f" By step, ms: {largest}." if largest else ""
    return (
        f"**Copies of INPUT0.** The bytes that must move, {(INPUT0 + RESIZED + SCORES + OUTPUTS) / 1e6:.0f} MB, would take "
        f"{floor:.1f} ms at the speed of the copy, that is {floor / summary.yardstick(results).middle:.1f} copies.{by_step} The copy is "
        "the fastest of 15 between arrays in huge pages; INPUT0 and the outputs lie in the client's shared memory, which has "
        "small ones."
    )


def _python(results: dict) -> str:
    parts = []
    for name, labels in targets.inputs(results).items():
        ours, theirs = (spread(results, summary.pipeline, **labels, stack=stack) for stack in ("rust", "python"))
        if ours and theirs:
            parts.append(f"{name}: {ours.middle:.0f} ms, where {theirs.middle / 50:.0f} would be a fiftieth of Python's {theirs.middle:,.0f}")
    return f"**Times faster than Python.** {'; '.join(parts)}. The bytes that must move take {_floor_ms(results):.0f} ms at the speed of the copy."


def _request(results: dict) -> str:
    ours, theirs = (spread(results, latency, section="headline", transport="shm", stack=s) for s in ("rust", "python_whole"))
    alone = spread(results, latency, section="alone", input="zero")
    if not (ours and theirs and alone):
        return ""
    around = spread(results, summary.around, section="headline", transport="shm", stack="rust").middle
    inside = spread(results, summary.network, section="headline", transport="shm", stack="rust").middle
    return (
        f"**Whole request.** The network took {alone.middle:,.0f} ms when called alone, in measurements of its own: a request of no more would be "
        f"{theirs.middle / alone.middle:.2f} times faster than the Python stack's {theirs.middle:,.0f} ms. Of the {ours.middle:,.0f} ms here, {around:.0f} "
        f"are the steps around the network ({around / alone.middle:.1%} of its time alone) and {inside:,.0f} the network when the "
        f"pipeline calls it, {inside - alone.middle:+,.0f} beside alone."
    )


def _memory(results: dict) -> str:
    return (
        f"**Peak memory.** Beside the network's own memory the server holds the network's input ({RESIZED / 1e6:.0f} MB) and answer "
        f"({SCORES / 1e6:.0f} MB), which lie in the client's shared memory when the network is called alone, two label maps "
        f"({2 * GRID / 1e6:.0f} MB) and the working memory of the search for components."
    )


def _throughput(results: dict) -> str:
    around = spread(results, summary.around, section="headline", transport="shm", stack="rust")
    alone = spread(results, latency, section="alone", input="zero")
    if not (around and alone):
        return ""
    share = 1 / (1 + around.middle / alone.middle)
    cores = results["machine"].get("cores", "")
    return (
        f"**Throughput beside the network alone.** The network uses all {cores} cores, so the steps around it take processor time from it "
        f"even where they overlap with it: {around.middle:.0f} ms to its {alone.middle:,.0f} leave {share:.3f} of its throughput."
    )

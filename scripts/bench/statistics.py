"""Triton's own statistics of a model, as differences between two readings."""

from __future__ import annotations

PHASES = ("queue", "compute_input", "compute_infer", "compute_output")


class StatisticsError(Exception):
    """The readings do not belong together."""


def difference(before: dict, after: dict) -> dict[str, float]:
    """Milliseconds for each request between two entries of model_stats: of each phase, and `server_ms` from start to end."""
    before, after = before["inference_stats"], after["inference_stats"]

    def change(phase: str, field: str) -> int:
        # Triton leaves out what is zero in some of its protocols.
        return int(after.get(phase, {}).get(field, 0)) - int(before.get(phase, {}).get(field, 0))

    count, failed = change("success", "count"), change("fail", "count")
    if failed or count < 0:
        raise StatisticsError(f"{failed} requests failed and {count} succeeded between the readings")
    result: dict[str, float] = {"count": count}
    if count:
        result["server_ms"] = change("success", "ns") / count / 1e6
        result.update({f"{phase}_ms": change(phase, "ns") / count / 1e6 for phase in PHASES})
    return result


def compute_ms(stats: dict[str, float]) -> float:
    """All that a request costs in the server, but not its wait for an instance."""
    return stats["compute_input_ms"] + stats["compute_infer_ms"] + stats["compute_output_ms"]


def before_and_after_ms(spleen: dict[str, float], network: dict[str, float]) -> float:
    """Everything but the network: the request's time in the server without the time of the network's own request."""
    return compute_ms(spleen) - network["server_ms"]

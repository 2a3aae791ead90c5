"""The part of a volume that the server needs to see.

The server's first step cuts out the box around all voxels above 0 after scaling. What lies outside is never used, so it need
not be sent. The box found here may be larger than the server's, never smaller: then the server cuts out the same voxels, and
its answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DEFAULTS = {"a_min": "-57", "b_min": "0", "margin": "0", "k_divisible": "1"}


@dataclass(frozen=True)
class Rule:
    """No voxel at or below ``threshold`` can be foreground; the server may use voxels up to ``reach`` away from those that are."""

    threshold: np.float32
    reach: tuple[int, int, int]

    @classmethod
    def of_parameters(cls, parameters: dict[str, str]) -> Rule | None:
        """From a model's parameters. None: the whole volume has to be sent."""

        def value(key: str) -> str:
            return parameters.get(key, DEFAULTS[key]).strip()

        def three(key: str) -> list[int]:
            numbers = [int(v) for v in value(key).strip("[]()").split(",")]
            return numbers * 3 if len(numbers) == 1 else numbers

        try:
            lowest = 0.0 if value("b_min").lower() in ("", "none") else float(value("b_min"))
            threshold = np.float32(value("a_min"))
            margin, divisible = three("margin"), three("k_divisible")
        except ValueError:
            return None
        # At a_min the scaled value is b_min. Scaling rises with the voxel's value, and so does every rounding within it.
        if lowest > 0 or not np.isfinite(threshold) or len(margin) != 3 or len(divisible) != 3:
            return None
        return cls(threshold, tuple(max(m, 0) + max(k - 1, 0) for m, k in zip(margin, divisible)))


def box(volume: np.ndarray, rule: Rule | None) -> tuple[slice, slice, slice] | None:
    """The part of ``volume`` to send; None where no voxel is foreground. NaN never is."""
    if rule is None:
        return tuple(slice(0, n) for n in volume.shape)
    above = volume > rule.threshold
    found = []
    for axis, reach in enumerate(rule.reach):
        hit = np.flatnonzero(above.any(axis=tuple(a for a in range(3) if a != axis)))
        if not len(hit):
            return None
        found.append(slice(max(0, int(hit[0]) - reach), min(volume.shape[axis], int(hit[-1]) + 1 + reach)))
    return tuple(found)

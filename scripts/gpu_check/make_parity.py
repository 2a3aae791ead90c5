"""Writes the bundle's parity.npz: the volumes of tests/parity, and what MONAI 1.6.1 makes of each on the CPU.

Run with the test environment: make_parity.py FILE [CASES], CASES being how many (default: all)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "parity"))

import monai_steps  # noqa: E402
import volumes  # noqa: E402

PARAMETERS = [
    {},
    {"mode": "trilinear"},
    {"margin": 3},
    {"mode": "nearest"},
    {"k_divisible": 16},
    {"mode": "nearest-exact"},
    {"margin": [0, 4, 2], "allow_smaller": False},
    {"num_components": 2, "connectivity": 1},
    {"mode": "trilinear", "align_corners": True},
    {"margin": 5, "allow_smaller": False, "k_divisible": [3, 8, 1]},
    {"a_min": -20.0, "a_max": 100.0},
]
# Resized voxels may differ by 1e-5: where one lies closer than this to the threshold the mask can go either way.
UNDECIDED = 1e-4


def case(name: str, volume: np.ndarray, parameters: dict) -> tuple[dict, dict[str, np.ndarray]]:
    resized, start, end = monai_steps.prepare(parameters, volume)
    told = {"volume": name, "parameters": parameters, "box": [start, end]}
    arrays = {"resized": resized}
    if np.nanmin(np.abs(resized - 0.5), initial=np.inf) < UNDECIDED:
        return told, arrays
    # The network of the check: the second class wins above a half. NaN counts as largest, and of equals the first class.
    labels = monai_steps.argmax(np.stack([0.5 - resized, resized - 0.5]))
    if not monai_steps.is_tied(parameters, labels):
        mask = monai_steps.keep_largest(parameters, labels)
    else:  # MONAI's choice is undefined: the product's rule
        mask = monai_steps.keep_last_of_equals(parameters, labels)
    arrays["MASK"], arrays["CONTOUR"] = mask, monai_steps.contour(mask)
    if not parameters.get("align_corners"):  # there MONAI's inverse has another geometry
        native = monai_steps.invert(parameters, volume, mask)
        arrays["MASK_NATIVE"], arrays["CONTOUR_NATIVE"] = native, monai_steps.contour(native)
    return told, arrays


def main() -> None:
    every = {**volumes.VOLUMES, "NaN and infinities": volumes.with_not_finite((31, 29, 37), 12)}
    chosen = [(name, size) for number, name in enumerate(every) for size in volumes.SIZES[number % 3 :: 3]]
    if len(sys.argv) > 2:  # spread over all of them
        chosen = chosen[:: max(len(chosen) // int(sys.argv[2]), 1)]
    cases, saved = [], {}
    for number, (name, size) in enumerate(chosen):
        told, arrays = case(name, every[name], {**PARAMETERS[number % len(PARAMETERS)], "spatial_size": list(size)})
        cases.append({**told, "number": number})
        saved[f"volume {name}"] = every[name]
        saved[f"resized {number}"] = arrays.pop("resized")
        saved.update({f"{output} {number}": np.packbits(labels.astype(bool).ravel()) for output, labels in arrays.items()})
    decided = sum(f"MASK {number}" in saved for number in range(len(cases)))
    if decided < len(cases) * 0.6:
        raise SystemExit(f"only {decided} of {len(cases)} cases decide a mask; most of them have to")
    np.savez_compressed(sys.argv[1], cases=json.dumps(cases), **saved)
    print(f"parity set: {len(cases)} cases, {decided} of them with masks", file=sys.stderr)


if __name__ == "__main__":
    main()

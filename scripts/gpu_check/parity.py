"""The parity set: volumes with what MONAI 1.6.1 makes of them on the CPU, made where the bundle was made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .check import TITLES, Check
from .repositories import network, spleen
from .server import Server

TOLERANCE = 1e-5
OUTPUTS = ("MASK", "CONTOUR", "MASK_NATIVE", "CONTOUR_NATIVE")


def load(bundle: Path) -> list[dict]:
    with np.load(bundle / "parity.npz") as archive:
        cases = json.loads(str(archive["cases"]))
        for case in cases:
            number = case["number"]
            case["image"] = archive[f"volume {case['volume']}"]
            case["resized"] = archive[f"resized {number}"]
            case["expected"] = {name: archive[f"{name} {number}"] for name in OUTPUTS if f"{name} {number}" in archive}
    return cases


def differences(case: dict, resized: np.ndarray, arrays: dict, parameters: dict) -> list[str]:
    """What is not as MONAI has it."""
    found = []
    box = [json.loads(parameters[key])[0] for key in ("crop_start", "crop_end")]
    if box != case["box"]:
        found.append(f"box {box}, MONAI's is {case['box']}")
    expected = case["resized"]
    if resized.size != expected.size:
        return [*found, f"{resized.size} resized voxels, MONAI's are {expected.size}"]
    resized = resized.reshape(expected.shape)
    # Where the bits are the same, nothing is to be subtracted: infinities, and NaN in the same places.
    off = ~((resized == expected) | (np.isnan(resized) & np.isnan(expected)))
    with np.errstate(invalid="ignore"):
        off &= ~(np.abs(resized - expected) <= TOLERANCE)
    if off.any():
        found.append(f"{int(off.sum())} resized voxels are further than {TOLERANCE} from MONAI's")
    for name, bits in case["expected"].items():
        array = arrays[name].ravel()
        wrong = int((array != np.unpackbits(bits, count=array.size)).sum())
        if wrong:
            found.append(f"{wrong} voxels of {name}")
    return found


def run(check: Check) -> None:
    """Every case on one kind of instance, the network on the same device: built in, and in the Python backend where that works."""
    cases = load(check.bundle)
    log = "parity_gpu" if check.gpu else "parity_cpu"
    wrong = []
    for backend in check.networks:
        found = compare(check, cases, backend, f"{log}_{backend}")
        wrong += [f"network {TITLES[backend]}: {difference}" for difference in found]
    check.fail_if(wrong, log)


def compare(check: Check, cases: list[dict], backend: str, log: str) -> list[str]:
    """All that is not as MONAI has it."""
    repository, given_to_network = check.work / backend, check.work / f"given_{backend}"
    network(repository, check.gpu, backend=backend, write_to=given_to_network)
    for case in cases:
        name = f"case_{case['number']}"
        size = tuple(case["parameters"]["spatial_size"])
        spleen(check.bundle, repository, check.gpu, size, case["parameters"], name=name, shipped="spleen_seg_native")
    wrong, voxels = [], 0
    with Server(check, repository, log) as server:
        for case in cases:
            given_to_network.unlink(missing_ok=True)
            try:
                arrays, parameters = server.infer(f"case_{case['number']}", case["image"][None], dict.fromkeys(OUTPUTS))
                resized = np.fromfile(given_to_network, np.float32)
                found = differences(case, resized, arrays, parameters)
                voxels += resized.size
            except Exception as error:  # noqa: BLE001: the other cases say where it works
                found = [f"{type(error).__name__}: {error}"]
            wrong += [f"{case['volume']}, {case['parameters']}: {difference}" for difference in found]
    masks = sum("MASK" in case["expected"] for case in cases)
    what = f"{len(cases)} cases: boxes, {voxels:,} resized voxels; masks and contours of {masks}"
    check.say(f"network {TITLES[backend]}: {what}; {len(wrong)} differences from MONAI 1.6.1")
    return wrong

"""What the demonstration prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spleen_client import millimetres
from spleen_client.scan import Scan
from spleen_client.segmenter import Segmentation

STAGE_MEANINGS = {
    "the backend": {
        "queue": "waiting for the instance",
        "compute_input": "read, scale, crop, resize",
        "compute_infer": "the call of segmentation_3d",
        "compute_output": "argmax, largest component, contour, write",
    },
    "the network": {"queue": "waiting for the instance", "compute_infer": "the network itself"},
}


class Files:
    """Where the results go."""

    def __init__(self, folder: Path):
        self.mask, self.contour = folder / "mask.nii.gz", folder / "contour.nii.gz"
        self.picture = folder / "spleen.png"
        self.ct, self.label = folder / "phantom.nii.gz", folder / "phantom_spleen.nii.gz"


@dataclass
class Measured:
    millilitres: float
    label_millilitres: float | None = None  # of the known spleen
    dice: float | None = None


def dice(a: np.ndarray, b: np.ndarray) -> float:
    """Twice the common part over the sum of both; 1 where both are empty."""
    a, b = a > 0, b > 0
    total = int(a.sum()) + int(b.sum())
    return 2 * int((a & b).sum()) / total if total else 1.0


def measure(scan: Scan, mask: np.ndarray, label: np.ndarray | None) -> Measured:
    found = Measured(scan.millilitres(int((mask > 0).sum())))
    if label is not None:
        found.label_millilitres = scan.millilitres(int(label.sum()))
        found.dice = dice(mask, label)
    return found


def facts(scan: Scan, found: Measured) -> str:
    """The line below the picture's title."""
    shape = " x ".join(map(str, scan.shape))
    parts = [f"{shape} voxels of {millimetres(scan.spacing)}"]
    parts.append(f"spleen {found.millilitres:.0f} mL" if found.millilitres else "no spleen found")
    if found.dice is not None:
        parts[-1] += f" (known: {found.label_millilitres:.0f} mL)"
        parts.append(f"Dice {found.dice:.3f}")
    return "   ·   ".join(parts)


def text(title: str, scan: Scan, found: Measured, answer: Segmentation, stages_ms: dict, files: Files, notice: str, made: bool) -> str:
    rows = [
        ("scan", title),
        ("shape", f"{' x '.join(map(str, scan.shape))} voxels, axes {scan.axes}"),
        ("spacing", millimetres(scan.spacing)),
        ("spleen", f"{found.millilitres:.1f} mL" if found.millilitres else "none found: the mask is empty"),
    ]
    if found.dice is not None:
        rows.append(("known", f"{found.label_millilitres:.1f} mL"))
        rows.append(("Dice", f"{found.dice:.4f}, in the scan's own grid"))
    lines = [
        "",
        *(f"{name:<10}{value}" for name, value in rows),
        "",
        "Stage times of this request, from the server's statistics, ms",
    ]
    for (model, stages), meanings in zip(stages_ms.items(), STAGE_MEANINGS.values()):
        lines.append(f"  {model}")
        for stage, value in stages.items():
            meaning = meanings.get(stage, "")
            lines.append(f"    {stage:<15}{value:10.1f}  {meaning}".rstrip())
    lines += [
        "  client",
        f"    {'prepare':<15}{answer.seconds['prepare'] * 1e3:10.1f}  the box that is sent, copied into {'shared memory' if 'shared' in answer.transport else 'the request'}",
        f"    {'round trip':<15}{answer.seconds['request'] * 1e3:10.1f}  from request to answer",
        "",
        "Files",
        f"  {files.picture}  the picture",
        f"  {files.mask}, {files.contour.name}  in the scan's own geometry",
    ]
    if made:
        lines.append(f"  {files.ct}, {files.label.name}  the phantom and its spleen")
        lines += ["", "This is one phantom. How the network does on others: models/segmentation_3d/README.md"]
    return "\n".join([*lines, "", notice])

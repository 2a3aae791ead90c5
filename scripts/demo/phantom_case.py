"""The scan of a demonstration that was given none: a phantom that the network never saw, kept in the cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import spleen_phantom
from spleen_client.progress import working

SEED = 100_000  # the first of the seeds and ranges that training leaves out (scripts/train_demo.py)
SHAPE = (512, 512, 114)


def phantom(cache: Path, seed: int = SEED) -> tuple[Path, Path]:
    """The files of the CT and of its spleen. Another version of the generator gets other files."""
    sources = sorted(Path(spleen_phantom.__file__).parent.glob("*.py"))
    version = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:12]
    folder = cache / "phantoms" / f"{version}-heldout-{seed}-{'x'.join(map(str, SHAPE))}"
    ct, label = folder / "ct.nii.gz", folder / "spleen.nii.gz"
    if not (ct.exists() and label.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        with working(f"making a phantom of {' x '.join(map(str, SHAPE))} voxels, once"):
            made = spleen_phantom.make_phantom(seed, SHAPE, ranges="heldout")
            # Whole files or none, should this be interrupted.
            parts = [p.with_name(f"{os.getpid()}-{p.name}") for p in (ct, label)]
            spleen_phantom.save_nifti(made, *parts)
            for part, path in zip(parts, (ct, label)):
                part.replace(path)
    return ct, label

"""Where a result came from, in the forms that its file formats have room for."""

from __future__ import annotations

from datetime import UTC, datetime

from . import VERSION
from .scan import DESCRIPTION_BYTES
from .segmenter import Segmentation

# Of the response: about the result or its geometry, not about its origin.
_NOT_ORIGIN = ("crop_start", "crop_end", "input_shape", "voxels", "volume_ml", "model_version", "sequence_id", "sequence_start", "sequence_end")


def collect(identity: dict[str, str], found: Segmentation, input_sha256: str, notice: str) -> dict[str, str]:
    """All of it, flat: what the server said before and in its answer, and what went in."""
    origin = dict(identity)
    if found.parameters.get("model_version"):
        origin["model_version"] = found.parameters["model_version"]
    origin |= {key: str(value) for key, value in found.parameters.items() if key not in _NOT_ORIGIN}
    return origin | {
        "client": f"triton-spleenseg {VERSION}",
        "input_sha256": input_sha256,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "notice": notice,
    }


def description(origin: dict[str, str]) -> str:
    """One line for NIfTI's descrip: the models and their versions, and what identifies build and configuration as far as it fits."""
    parts = [f"{origin['model']} v{origin['model_version']}", f"{origin['network']} v{origin.get('network_version', '')}"]
    parts += [f"{name} {origin[key][:8]}" for name, key in (("build", "build_id"), ("cfg", "model_config_sha256")) if origin.get(key)]
    line = ""
    for part in parts:
        longer = f"{line} {part}".strip()
        if len(longer) > DESCRIPTION_BYTES:
            break
        line = longer
    return line

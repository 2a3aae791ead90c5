"""Where a result came from, in the forms that its file formats have room for."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from . import VERSION
from .scan import DESCRIPTION_BYTES
from .segmenter import Segmentation

# Of the response: about the result or its geometry, not about its origin.
_NOT_ORIGIN = ("crop_start", "crop_end", "input_shape", "voxels", "mask_voxels", "volume_ml", "model_version", "network")


def collect(identity: dict[str, str], found: Segmentation, input_sha256: str, notice: str) -> dict[str, str]:
    """All of it, flat: what the server said before and in its answer, and what went in. The answer's own word counts more."""
    origin = dict(identity)
    answered = found.parameters
    if answered.get("model_version"):
        origin["model_version"] = str(answered["model_version"])
    network = one_volume(answered.get("network"))
    if isinstance(network, str) and "/" in network:
        origin["network"], _, origin["network_version"] = network.rpartition("/")
    origin |= {key: str(value) for key, value in answered.items() if key not in _NOT_ORIGIN and not key.startswith("sequence_")}
    return origin | {
        "client": f"triton-spleenseg {VERSION}",
        "input_sha256": input_sha256,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "notice": notice,
    }


def one_volume(text):
    """The entry of the only volume in a response parameter that holds a JSON list; None where there is none."""
    try:
        return json.loads(text)[0]
    except (TypeError, ValueError, LookupError):
        return None


def description(origin: dict[str, str]) -> str:
    """One line for NIfTI's descrip, as far as it fits: both models and their versions, configuration, build."""
    parts = [f"{origin['model']} v{origin['model_version']}", f"{origin['network']} v{origin.get('network_version', '')}"]
    parts.append(f"cfg {origin.get('config_hash', origin['model_config_sha256'])[:8]}")
    parts.append(origin.get("build_id", ""))
    return " ".join(filter(None, parts))[:DESCRIPTION_BYTES]

"""The model repositories that are compared. Each stack answers to the same two model names with the same tensors."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_BACKEND = ROOT / "benches" / "python_backend"

SPLEEN, NETWORK = "spleen_seg", "segmentation_3d"


@dataclass(frozen=True)
class Stack:
    """Who serves what."""

    name: str
    title: str
    pipeline: str | None  # the backend of spleen_seg; None: it is not served
    network: str = "pytorch"  # the backend of segmentation_3d


RUST = Stack("rust", "this backend", "spleenseg")
PYTHON = Stack("python", "Python backend, same network", "python")
PYTHON_WHOLE = Stack("python_whole", "Python backend, network in Python too", "python", "python")
NETWORK_ONLY = Stack("network", "the network alone", None)
STACKS = {stack.name: stack for stack in (RUST, PYTHON, PYTHON_WHOLE, NETWORK_ONLY)}


def with_backend(config: str, backend: str) -> str:
    """A configuration for another backend: as design has it, this one line is all that changes."""
    return _replace_once(config, r'^backend: "[^"]*"', f'backend: "{backend}"')


def with_instances(config: str, count: int) -> str:
    return _replace_once(config, r"(kind: KIND_CPU\s+count:) \d+", rf"\g<1> {count}")


def with_parameter(config: str, key: str, value: str) -> str:
    return f'{config}\nparameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def _replace_once(config: str, pattern: str, new: str) -> str:
    changed, count = re.subn(pattern, new, config, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"the configuration has {count} places that match {pattern!r}; one is expected")
    return changed


def write(folder: Path, stack: Stack, network: Path, *, instances: int = 1, step_times: Path | None = None) -> Path:
    """Writes the repository of a stack into `folder`, with the network in the file `network`."""
    config = with_instances((ROOT / "models" / NETWORK / "config.pbtxt").read_text(), instances)
    _write_model(folder / NETWORK, with_backend(config, stack.network), stack.network)
    (folder / NETWORK / "1" / "model.pt").symlink_to(network.resolve())
    if stack.pipeline:
        config = with_instances((ROOT / "models" / SPLEEN / "config.pbtxt").read_text(), instances)
        if stack.pipeline == "python" and step_times:
            config = with_parameter(config, "STEP_TIMES", str(step_times))
        _write_model(folder / SPLEEN, with_backend(config, stack.pipeline), stack.pipeline)
    return folder


def _write_model(folder: Path, config: str, backend: str) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    if backend == "python":
        shutil.copy(PYTHON_BACKEND / folder.name / "1" / "model.py", folder / "1" / "model.py")

"""Model repositories: the shipped spleen_seg; networks that are built in, and networks in the Python backend on this machine's own PyTorch."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from .check import BUILT_IN, PYTHON

NETWORK = "segmentation_3d"

# Two classes, of which the second wins above a half: what the parity set was made with, and what threshold_backend does.
THRESHOLD = "torch.cat([0.5 - x, x - 0.5], dim=1)"
# The TorchScript module in model.pt.
MODULE = "self.module(x)"

# Tensors come and go by DLPack alone: Triton's Python stub was built for NumPy 1, and as_numpy() needs that.
CHILD = '''
import json
import os

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device("cuda", int(args["model_instance_device_id"])) if gpu else torch.device("cpu")
        parameters = json.loads(args["model_config"])["parameters"]
        self.write_to = parameters.get("write_to", {{}}).get("string_value")
        path = os.path.join(args["model_repository"], args["model_version"], "model.pt")
        self.module = torch.jit.load(path, map_location=self.device).eval() if os.path.exists(path) else None

    @torch.inference_mode()
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "INPUT__0")
        x = torch.from_dlpack(given.to_dlpack()).to(self.device)
        if self.write_to:
            x.cpu().numpy().tofile(self.write_to)
        scores = ({scores}).contiguous()
        if scores.is_cuda:
            torch.cuda.current_stream().synchronize()
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUTPUT__0", scores)])
'''


def kind(gpu: bool) -> str:
    """Of one instance; without a number Triton makes one for each GPU of the machine."""
    return "kind: KIND_GPU gpus: [ 0 ]" if gpu else "kind: KIND_CPU"


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def network(
    root: Path, gpu: bool, name: str = NETWORK, backend: str = BUILT_IN, module: Path | None = None, write_to: Path | None = None
) -> None:
    """A threshold, or a TorchScript module in the Python backend. A threshold writes what it is given to a file, where one is named."""
    folder = root / name / "1"
    folder.mkdir(parents=True)
    config = f"""
name: "{name}"
backend: "{backend}"
max_batch_size: 1
input [ {{ name: "INPUT__0" data_type: TYPE_FP32 dims: [ 1, -1, -1, -1 ] }} ]
output [ {{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2, -1, -1, -1 ] }} ]
instance_group [ {{ {kind(gpu)} count: 1 }} ]
{parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "no")}
"""
    if write_to:
        config += parameter("write_to", str(write_to))
    (folder.parent / "config.pbtxt").write_text(config)
    if backend != PYTHON:
        return
    scores = MODULE if module else THRESHOLD
    (folder / "model.py").write_text(CHILD.format(scores=scores))
    if module:
        shutil.copy(module, folder / "model.pt")


def spleen(
    bundle: Path,
    root: Path,
    gpu: bool,
    size: tuple[int, ...],
    parameters: dict | None = None,
    name: str = "spleen_seg",
    child: str = NETWORK,
    shipped: str = "spleen_seg",
    backend: str = "spleenseg",
) -> Path:
    """The shipped configuration with another kind of instance, size, name and some parameters. The folder of its version."""
    config = (bundle / "models" / shipped / "config.pbtxt").read_text()
    config = re.sub(r"^\s*#.*\n", "", config, flags=re.MULTILINE)
    changes = {
        f'name: "{shipped}"': f'name: "{name}"',
        'backend: "spleenseg"': f'backend: "{backend}"',
        "kind: KIND_CPU": kind(gpu),
        "dims: [ 1, 224, 224, 224 ]": f"dims: [ 1, {', '.join(map(str, size))} ]",
    }
    for old, new in changes.items():
        if old not in config:
            raise RuntimeError(f"models/{shipped}/config.pbtxt has no '{old}'")
        config = config.replace(old, new)
    values = {"spatial_size": size, "segmentation_model": child, **(parameters or {})}
    for key, value in values.items():
        entry = parameter(key, text(value))
        config, count = re.subn(rf'parameters {{ key: "{re.escape(key)}" .*', lambda _, entry=entry: entry, config)
        if not count:
            config += f"\n{entry}\n"
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(config)
    return folder


def text(value) -> str:
    """A parameter as config.pbtxt has it."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value).lower() if isinstance(value, bool) else str(value)

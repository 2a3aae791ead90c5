"""Writes models for the tests: variants of the shipped spleen_seg, and child networks that a test defines in one line."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SIZE = (24, 20, 16)

# The two-class network that most tests use. x is the resized volume [N,1,D,H,W] with values from 0 to 1.
TWO_CLASSES = "np.concatenate([0.5 - x, x - 0.5], axis=1)"

CHILD = '''
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "{input}").as_numpy()
            try:
                scores = {scores}
            except Exception as error:
                replies.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
                continue
            replies.append(pb_utils.InferenceResponse([pb_utils.Tensor("{output}", np.ascontiguousarray(scores))]))
        return replies


def fail(text):
    raise RuntimeError(text)


def after(seconds, value):
    time.sleep(seconds)
    return value


def meet(mine, other, value):
    """The value once another model, in a process of its own, has come to the same place."""
    open(mine, "w").close()
    deadline = time.monotonic() + 150
    while not os.path.exists(other):
        if time.monotonic() > deadline:
            raise RuntimeError("the other model was not called meanwhile")
        time.sleep(0.01)
    return value
'''


# A network whose behaviour is commanded by each request: its id, which the in-process call inherits, is an expression.
# It gives the scores, or a whole response, or a list of responses; without an id the scores of TWO_CLASSES.
COMMANDED = '''
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

DECOUPLED = {decoupled}


class TritonPythonModel:
    def execute(self, requests):
        answers = [self.answers(request) for request in requests]
        return None if DECOUPLED else [answer[0] for answer in answers if answer]

    def answers(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "INPUT__0").as_numpy()
        try:
            wanted = eval(request.request_id() or "good(x)", globals(), {{"x": x}})
        except ValueError as error:
            wanted = pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        answers = [response(answer) for answer in (wanted if isinstance(wanted, list) else [wanted])]
        if DECOUPLED:
            sender = request.get_response_sender()
            for answer in answers:
                sender.send(answer)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return answers


def response(answer, name="OUTPUT__0"):
    if isinstance(answer, pb_utils.InferenceResponse):
        return answer
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.ascontiguousarray(answer))])


def good(x):
    return {scores}


def fail(text):
    raise ValueError(text)


def when(path, value):
    """The value once the test has written a file there; `path`.begun says that this waits for it."""
    open(path + ".begun", "w").close()
    deadline = time.monotonic() + 150
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise ValueError(path + " has not come")
        time.sleep(0.01)
    return value
'''


def scores(expression: str, x: np.ndarray) -> np.ndarray:
    """What a child with this expression answers to x."""
    return eval(expression, {"np": np, "x": x})  # noqa: S307: the tests' own text


@dataclass
class Repository:
    """A model repository that grows while the server runs."""

    root: Path
    counter: int = 0
    written: list[str] = field(default_factory=list)

    def name(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}_{self.counter}"

    def write(self, name: str, config: str) -> Path:
        folder = self.root / name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config)
        self.written.append(name)
        return folder

    def child(
        self,
        expression: str = TWO_CLASSES,
        *,
        data_type: str = "TYPE_FP32",
        dims: tuple[int, ...] = (-1, -1, -1, -1),
        max_batch_size: int = 8,
        input_name: str = "INPUT__0",
        output_name: str = "OUTPUT__0",
        instances: int = 1,
        extra: str = "",
    ) -> str:
        """A segmentation network in the stock Python backend that answers `expression` of its input x."""
        name = self.name("child")
        folder = self.write(
            name,
            f"""
name: "{name}"
backend: "python"
max_batch_size: {max_batch_size}
input [ {{ name: "{input_name}" data_type: TYPE_FP32 dims: [ {", ".join(map(str, dims))} ] }} ]
output [ {{ name: "{output_name}" data_type: {data_type} dims: [ {", ".join(map(str, dims))} ] }} ]
instance_group [ {{ kind: KIND_CPU count: {instances} }} ]
{extra}
""",
        )
        source = CHILD.format(input=input_name, output=output_name, scores=expression)
        (folder / "1" / "model.py").write_text(source)
        return name

    def commanded(self, *, instances: int = 1, decoupled: bool = False) -> str:
        """A network that does what each request's id says, see COMMANDED."""
        policy = "model_transaction_policy { decoupled: true }" if decoupled else ""
        name = self.child(instances=instances, extra=policy)
        (self.root / name / "1" / "model.py").write_text(COMMANDED.format(decoupled=decoupled, scores=TWO_CLASSES))
        return name

    def torchscript(self, model: Path, config: str) -> str:
        """A TorchScript network in the pytorch backend. `config` is everything after name and backend."""
        name = self.name("torchscript")
        folder = self.write(name, f'name: "{name}"\nbackend: "pytorch"\n{config}')
        shutil.copy(model, folder / "1" / "model.pt")
        return name

    def quick(self, folder: Path) -> str:
        """TWO_CLASSES as TorchScript, which loads in no time and needs no /dev/shm; a process of Python's takes its time and does."""
        import torch  # the client's tests, which use this file too, have none

        convolution, file = torch.nn.Conv3d(1, 2, 1), folder / "network.pt"
        convolution.weight.data = torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1, 1)
        convolution.bias.data = torch.tensor([0.5, -0.5])
        torch.jit.script(convolution).save(str(file))
        tensors = "".join(
            f'{kind} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ {classes}, -1, -1, -1 ] }} ]\n'
            for kind, name, classes in (("input", "INPUT__0", 1), ("output", "OUTPUT__0", 2))
        )
        return self.torchscript(file, f"max_batch_size: 1\n{tensors}instance_group [ {{ kind: KIND_CPU }} ]\n")

    def spleen(
        self,
        child: str,
        parameters: dict[str, str] | None = None,
        *,
        size: tuple[int, int, int] = SIZE,
        data_type: str = "TYPE_FP32",
        input_type: str = "TYPE_FP32",
        max_batch_size: int = 1,
        drop: tuple[str, ...] = (),
        extra: str = "",
        shipped: str = "spleen_seg",
    ) -> str:
        """A shipped model with a small size, another child, and what else a test changes.

        `drop` names blocks of the configuration ("input", "output") that are left out.
        """
        name = self.name("spleen")
        config = shipped_config(shipped)
        config = config.replace(f'name: "{shipped}"', f'name: "{name}"')
        config = re.sub(r"max_batch_size: \d+", f"max_batch_size: {max_batch_size}", config)
        dims = ", ".join(map(str, size))
        if max_batch_size == 0:
            config = config.replace("dims: [ -1, -1, -1 ]", "dims: [ -1, -1, -1, -1 ]")
            config = config.replace("dims: [ 1, 224, 224, 224 ]", f"dims: [ -1, 1, {dims} ]")
            config = config.replace("dims: [ 1, -1, -1, -1 ]", "dims: [ -1, 1, -1, -1, -1 ]")
        else:
            config = config.replace("dims: [ 1, 224, 224, 224 ]", f"dims: [ 1, {dims} ]")
        for block in ("input", "output"):
            found = re.search(rf"^{block} \[\n.*?^\]\n", config, re.DOTALL | re.MULTILINE)
            text = found.group(0)
            wanted = input_type if block == "input" else data_type
            changed = "" if block in drop else re.sub(r"TYPE_\w+", wanted, text)
            config = config.replace(text, changed)
        for key, value in {"spatial_size": ",".join(map(str, size)), "segmentation_model": child, **(parameters or {})}.items():
            config = set_parameter(config, key, value)
        self.write(name, config + extra)
        return name


def shipped_config(model: str = "spleen_seg") -> str:
    """A model's config.pbtxt without its comments."""
    text = (ROOT / "models" / model / "config.pbtxt").read_text()
    return re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)


def set_parameter(config: str, key: str, value: str) -> str:
    """The configuration with this parameter's value replaced, or added if it is not there."""
    entry = f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
    pattern = rf'parameters {{ key: "{re.escape(key)}" value {{ string_value: "[^"]*" }} }}'
    changed, count = re.subn(pattern, lambda _: entry, config)
    return changed if count else f"{config}\n{entry}\n"

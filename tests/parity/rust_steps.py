"""The pipeline's own steps, run by the example `steps` on .npy files."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np


def text(value) -> str:
    """A parameter as config.pbtxt has it: None is empty, lists are JSON."""
    if value is None:
        return ""
    if isinstance(value, (bool, list, tuple)):
        return json.dumps(value)
    return str(value)


class Refused(Exception):
    """The error of a step, with its code."""

    def __init__(self, message: str, code: str | None):
        super().__init__(message)
        self.code = code


@dataclass
class Prepared:
    resized: np.ndarray
    crop_start: list[int]
    crop_end: list[int]
    input_shape: list[int]
    nan_count: int
    inf_count: int


class Steps:
    def __init__(self, program: Path, folder: Path, *arguments: str):
        self.folder = folder
        self.process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == 0

    def run(self, step: str, parameters: dict | None = None, **command) -> dict:
        if parameters is not None:
            command["parameters"] = {key: text(value) for key, value in parameters.items()}
        self.process.stdin.write(json.dumps({"step": step, **command}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the steps process ended with {self.process.wait()} at step {step} {command}"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer["code"])
        return answer

    def save(self, name: str, array: np.ndarray) -> str:
        path = str(self.folder / f"{name}.npy")
        np.save(path, np.ascontiguousarray(array))
        return path

    def path(self, name: str) -> str:
        """The path of a result, without what an earlier step left there."""
        path = self.folder / f"{name}.npy"
        path.unlink(missing_ok=True)
        return str(path)

    def config(self, parameters: dict) -> dict:
        return self.run("config", parameters)

    def prepare(self, parameters: dict, *volumes: np.ndarray) -> list[Prepared]:
        inputs = [self.save(f"volume{i}", volume) for i, volume in enumerate(volumes)]
        outputs = [self.path(f"resized{i}") for i in range(len(volumes))]
        told = self.run("prepare", parameters, inputs=inputs, outputs=outputs)["volumes"]
        return [Prepared(resized=np.load(path), **volume) for path, volume in zip(outputs, told, strict=True)]

    def argmax(self, logits: np.ndarray) -> tuple[np.ndarray, int]:
        output = self.path("labels")
        answer = self.run("argmax", input=self.save("logits", logits), output=output)
        return np.load(output), answer["nan_count"]

    def keep_largest(self, parameters: dict, labels: np.ndarray) -> np.ndarray:
        output = self.path("kept")
        self.run("keep_largest", parameters, input=self.save("labels", labels), output=output)
        return np.load(output)

    def contour(self, labels: np.ndarray) -> np.ndarray:
        output = self.path("contour")
        self.run("contour", input=self.save("labels", labels), output=output)
        return np.load(output)

    def restore(self, labels: np.ndarray, place: Prepared, align_corners: bool = False) -> tuple[np.ndarray, dict]:
        """Labels of the network's grid on the grid of the volume that was prepared, and how many are above 0 on both."""
        output = self.path("native")
        where = {"crop_start": place.crop_start, "crop_end": place.crop_end, "input_shape": place.input_shape}
        told = self.run("restore", input=self.save("labels", labels), output=output, align_corners=align_corners, **where)
        return np.load(output), {"grid": told["grid"], "native": told["native"]}

    def write(self, data_type: str, labels: np.ndarray) -> np.ndarray:
        output = self.path("written")
        self.run("write", type=data_type, input=self.save("labels", labels), output=output)
        return np.load(output)

    def finish(self, parameters: dict, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mask, contour = self.path("mask"), self.path("contour")
        self.run("finish", parameters, input=self.save("logits", logits), mask=mask, contour=contour)
        return np.load(mask), np.load(contour)

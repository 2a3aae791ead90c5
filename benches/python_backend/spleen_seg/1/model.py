"""The pipeline of spleen_seg in Triton's Python backend, with MONAI's transforms: what libtriton_spleenseg.so is measured against.

It reads the same parameters as this project's backend, answers the same tensors, and is tuned as far as the transforms
themselves allow; benches/python_backend/README.md says how.
"""

from __future__ import annotations

import json
import os
import time

# Read by torch when it is loaded: large buffers in huge pages spare most of the page faults that each transform's new
# tensors cost.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402
from monai.data import set_track_meta  # noqa: E402
from monai.transforms import (  # noqa: E402
    AsDiscrete,
    CropForeground,
    EnsureChannelFirst,
    EnsureType,
    KeepLargestConnectedComponent,
    LabelToContour,
    Resize,
    ScaleIntensityRange,
)


class StepTimes:
    """The wall time of each step of a request. Written to a file only where the parameter STEP_TIMES names one."""

    def __init__(self, path: str | None):
        self.path = path
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def done(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self.last
        self.last = now

    def write(self) -> None:
        if self.path:
            with open(self.path, "a", encoding="ascii") as out:
                out.write(json.dumps(self.seconds) + "\n")


def numbers(text: str, kind) -> tuple:
    return tuple(kind(part) for part in text.split(",") if part.strip())


def number_or_all(text: str) -> int | tuple:
    """One number for all axes, or one for each."""
    found = numbers(text, int)
    return found[0] if len(found) == 1 else found


def flag(text: str) -> bool | None:
    return {"": None, "true": True, "false": False}[text.strip().lower()]


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        value = {key: entry["string_value"] for key, entry in config["parameters"].items()}
        self.types = {
            output["name"]: torch.from_numpy(np.empty(0, pb_utils.triton_string_to_numpy(output["data_type"]))).dtype
            for output in config["output"]
        }
        self.step_times = value.get("STEP_TIMES")
        gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device("cuda", int(args["model_instance_device_id"])) if gpu else torch.device("cpu")

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        # Nobody reads the affine and the history of applied transforms here, so plain tensors do.
        set_track_meta(False)
        self.channel = EnsureChannelFirst(channel_dim="no_channel")
        self.ensure = EnsureType(data_type="tensor", dtype=torch.float32)
        self.scale = ScaleIntensityRange(
            *(float(value[key]) for key in ("a_min", "a_max", "b_min", "b_max")), clip=bool(flag(value["clip"]))
        )
        self.crop = CropForeground(
            margin=number_or_all(value["margin"]),
            allow_smaller=bool(flag(value["allow_smaller"])),
            k_divisible=number_or_all(value["k_divisible"]),
        )
        self.resize = Resize(
            number_or_all(value["spatial_size"]), mode=value["mode"], align_corners=flag(value["align_corners"])
        )
        self.argmax = AsDiscrete(argmax=True)
        self.keep_largest = KeepLargestConnectedComponent(
            applied_labels=numbers(value["applied_labels"], int) or None,
            is_onehot=flag(value["is_onehot"]),
            independent=bool(flag(value["independent"])),
            connectivity=int(value["connectivity"]) if value["connectivity"] else None,
            num_components=int(value["num_components"]),
        )
        self.contour = LabelToContour()

        self.network = value["segmentation_model"]
        self.network_version = int(value["segmentation_version"])
        self.network_input = value["segmentation_input"]
        self.network_output = value["segmentation_output"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    @torch.inference_mode()
    def answer(self, request):
        times = StepTimes(self.step_times)
        try:
            # DLPack shares the memory of the request: the input is not copied where it is on the instance's device.
            volumes = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "INPUT0").to_dlpack()).to(self.device)
            results = [self.segment(volume, times) for volume in volumes]
        except Exception as error:  # one bad request must not take the others of its batch with it
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        wanted = request.requested_output_names()
        outputs = [
            pb_utils.Tensor.from_dlpack(name, torch.stack([result[name] for result in results]).to(self.types[name]))
            for name in self.types
            if name in wanted
        ]
        times.done("answer")
        times.write()
        return pb_utils.InferenceResponse(outputs)

    def segment(self, volume: torch.Tensor, times: StepTimes) -> dict[str, torch.Tensor]:
        image = self.ensure(self.channel(volume))
        times.done("read")
        image = self.scale(image)
        times.done("scale")
        image = self.crop(image)
        times.done("crop")
        image = self.resize(image)
        times.done("resize")
        scores = self.scores(image)
        times.done("network")
        if self.device.type == "cpu":
            # torch's argmax is several times faster along an axis that is contiguous, even with this copy.
            scores = scores.contiguous(memory_format=torch.channels_last_3d)
        scores = scores[0]
        labels = self.argmax(scores)
        times.done("argmax")
        # Works in place; the labels before it are not needed any more.
        mask = self.keep_largest(labels)
        times.done("components")
        contour = self.contour(mask)
        times.done("contour")
        return {"MASK": mask, "CONTOUR": contour}

    def scores(self, image: torch.Tensor) -> torch.Tensor:
        """The answer of the network, [1,C,D,H,W], in the memory that the Python backend shares with the server."""
        call = pb_utils.InferenceRequest(
            model_name=self.network,
            model_version=self.network_version,
            requested_output_names=[self.network_output],
            inputs=[pb_utils.Tensor.from_dlpack(self.network_input, image[None])],
        )
        answer = call.exec()
        if answer.has_error():
            raise RuntimeError(f"model '{self.network}' failed: {answer.error().message()}")
        return torch.from_dlpack(pb_utils.get_output_tensor_by_name(answer, self.network_output).to_dlpack()).to(self.device)

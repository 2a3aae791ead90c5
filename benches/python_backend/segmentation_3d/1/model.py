"""The network in Triton's Python backend: the other half of a stack without this project's backends."""

from __future__ import annotations

import os
from pathlib import Path

# Read by torch when it is loaded; see benches/python_backend/README.md.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import torch  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402


class TritonPythonModel:
    def initialize(self, args):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        model = Path(args["model_repository"]) / args["model_version"] / "model.pt"
        network = torch.jit.load(str(model), map_location="cpu").eval()
        # oneDNN's 3-D convolutions are faster on channels-last weights.
        self.network = network.to(memory_format=torch.channels_last_3d)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    @torch.inference_mode()
    def answer(self, request):
        try:
            image = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "INPUT__0").to_dlpack())
            scores = self.network(image).contiguous()
        except Exception as error:  # one bad request must not take the others of its batch with it
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUTPUT__0", scores)])

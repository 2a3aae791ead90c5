"""The example `threads` in the Python backend: the same steps, shared out over a pool of threads."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.limit = int(parameters["limit"]["string_value"])
        self.threads = int(parameters.get("threads", {}).get("string_value", 0)) or len(os.sched_getaffinity(0))
        self.pool = ThreadPoolExecutor(self.threads)

    def execute(self, requests):
        responses = []
        for request in requests:
            points = pb_utils.get_input_tensor_by_name(request, "POINTS").as_numpy()
            parts = self.pool.map(self.steps, np.array_split(points, self.threads))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("ITERATIONS", np.concatenate(list(parts)))]))
        return responses

    def steps(self, points):
        return np.array([self.one(re, im) for re, im in points.tolist()], np.int32)

    def one(self, re, im):
        x = y = 0.0
        for step in range(self.limit):
            x, y = x * x - y * y + re, 2.0 * x * y + im
            if x * x + y * y > 4.0:
                return step
        return self.limit

    def finalize(self):
        self.pool.shutdown()

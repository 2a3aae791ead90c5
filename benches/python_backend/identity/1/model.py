"""OUTPUT is INPUT: the example `identity` in the Python backend."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given.as_numpy())]))
        return responses

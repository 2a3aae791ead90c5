"""The examples of triton_backend_api, each a backend of its own, on stock Triton."""

from __future__ import annotations

import queue

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

CONFIG_TYPES = {"BYTES": "STRING"}


def tensor(kind: str, name: str, data_type: str, dims) -> str:
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_{CONFIG_TYPES.get(data_type, data_type)} dims: {list(dims)} }} ]\n'


def parameters(values: dict[str, str]) -> str:
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def example(models, backend: str, body: str) -> str:
    """A model of that example, loaded."""
    name = models.write.name(backend)
    models.write.write(name, f'name: "{name}"\nbackend: "{backend}"\n{body}instance_group [ {{ kind: KIND_CPU }} ]\n')
    return models.load(name)


def infer(server, model: str, inputs: dict[str, np.ndarray], kind=tritonclient.http, outputs=None, **options):
    given = [kind.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)) for name, array in inputs.items()]
    for place, array in zip(given, inputs.values()):
        place.set_data_from_numpy(array)
    wanted = [kind.InferRequestedOutput(name) for name in outputs] if outputs else None
    client = server.http() if kind is tritonclient.http else server.grpc()
    return client.infer(model, given, outputs=wanted, **options)


VALUES = {
    "FP32": np.array([[1.5, -2.0, np.nan]], np.float32),
    "FP64": np.array([[1e300]], np.float64),
    "FP16": np.array([[1.5, -2.0]], np.float16),
    "INT64": np.arange(-3, 3, dtype=np.int64).reshape(2, 3),
    "UINT8": np.arange(256, dtype=np.uint8).reshape(1, 256),
    "BOOL": np.array([[True], [False]]),
    "INT32": np.zeros((2, 0), np.int32),
    "BYTES": np.array([[b"", "\u00e4".encode(), b"\0\xff" * 300]], np.object_),
}


@pytest.mark.parametrize("kind", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def test_identity_of_every_type(server, models, kind):
    body = "".join(
        tensor("input", f"IN_{name}", name, [-1, -1]) + tensor("output", f"OUT_{name}", name, [-1, -1]) for name in VALUES
    )
    model = example(models, "identity", body)
    answer = infer(server, model, {f"IN_{name}": array for name, array in VALUES.items()}, kind)
    for name, array in VALUES.items():
        found = answer.as_numpy(f"OUT_{name}")
        assert found.shape == array.shape, name
        assert found.tolist() == array.tolist() if name == "BYTES" else found.tobytes() == array.tobytes(), name
        assert found.dtype == array.dtype or found.size == 0, name  # the HTTP client forgets the type of no elements
    alone = infer(server, model, {f"IN_{name}": array for name, array in VALUES.items()}, outputs=["OUT_BOOL"])
    assert [output["name"] for output in alone.get_response()["outputs"]] == ["OUT_BOOL"]


def test_identity_of_a_tensor_that_comes_in_pieces(server, models):
    model = example(models, "identity", tensor("input", "IN", "UINT8", [-1]) + tensor("output", "OUT", "UINT8", [-1]))
    large = np.random.default_rng(0).integers(0, 256, 20_000_000, np.uint8)
    np.testing.assert_array_equal(infer(server, model, {"IN": large}).as_numpy("OUT"), large)


def test_versions_have_their_own_parameters(server, models):
    name = models.write.name("identity")
    folder = models.write.write(
        name,
        f'name: "{name}"\nbackend: "identity"\nversion_policy {{ specific {{ versions: [ 1, 3 ] }} }}\n'
        + tensor("input", "IN", "INT32", [-1])
        + tensor("output", "OUT", "INT32", [-1])
        + parameters(
            {
                "label": "of all versions",
                "3.label": "of the third",
                "1.note": "$$TRITON_MODEL_DIRECTORY/1/note.txt",
                "3.note": "$$TRITON_MODEL_DIRECTORY/notes/third.txt",
            }
        ),
    )
    for below in ("2", "3", "notes"):
        (folder / below).mkdir()
    (folder / "1" / "note.txt").write_text("read for version 1")
    (folder / "notes" / "third.txt").write_text("read for version 3")
    models.load(name)
    array = np.arange(4, dtype=np.int32)
    said = {"1": ("of all versions", "read for version 1"), "3": ("of the third", "read for version 3")}
    for version, texts in {**said, "": said["3"]}.items():
        response = infer(server, name, {"IN": array}, model_version=version)
        np.testing.assert_array_equal(response.as_numpy("OUT"), array)
        found = response.get_response()
        assert found["model_version"] == (version or "3")
        assert (found["parameters"]["label"], found["parameters"]["note"]) == texts
    with pytest.raises(InferenceServerException, match="version 2"):
        infer(server, name, {"IN": array}, model_version="2")


def test_a_note_that_is_not_there_refuses_the_load(server, models):
    pair = tensor("input", "IN", "INT32", [-1]) + tensor("output", "OUT", "INT32", [-1])
    with pytest.raises(InferenceServerException, match=r"note .*/identity_\d+/nowhere: No such file"):
        example(models, "identity", pair + parameters({"note": "$$TRITON_MODEL_DIRECTORY/nowhere"}))


ADD_SUB = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n" + "".join(
    tensor(kind, f"{kind.upper()}{at}", "FP32", [4]) for kind in ("input", "output") for at in (0, 1)
)


def test_add_sub(server, models):
    model = example(models, "add_sub", ADD_SUB)
    a, b = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    answer = infer(server, model, {"INPUT0": a, "INPUT1": b})
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), a + b)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), a - b)
    alone = infer(server, model, {"INPUT0": a, "INPUT1": b}, outputs=["OUTPUT1"])
    assert [output["name"] for output in alone.get_response()["outputs"]] == ["OUTPUT1"]


def test_add_sub_answers_each_request_of_a_batch_with_its_own(server, models):
    model = example(models, "add_sub", ADD_SUB)
    client, pending = server.http(), []
    rows = [np.full((1 + at % 2, 4), at, np.float32) for at in range(12)]
    for row in rows:
        given = [tritonclient.http.InferInput(f"INPUT{at}", list(row.shape), "FP32") for at in (0, 1)]
        given[0].set_data_from_numpy(row)
        given[1].set_data_from_numpy(row * 10)
        pending.append(client.async_infer(model, given))
    for row, request in zip(rows, pending):
        answer = request.get_result()
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), row * 11)
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), row * -9)
    found = client.get_inference_statistics(model)["model_stats"][0]
    assert found["inference_count"] == sum(len(row) for row in rows)


def test_two_calls_are_in_flight_at_once(server, models, tmp_path):
    """The first two models answer only once both have been called."""
    last = example(models, "add_sub", ADD_SUB)
    here, there = tmp_path / "here", tmp_path / "there"
    vector = {"dims": (4,), "input_name": "INPUT0", "output_name": "OUTPUT0"}
    first = models.child(f"meet({str(here)!r}, {str(there)!r}, x * 2)", **vector)
    second = models.child(f"meet({str(there)!r}, {str(here)!r}, x * 3)", **vector)
    pair = tensor("input", "INPUT0", "FP32", [4]) + "".join(tensor("output", f"OUTPUT{at}", "FP32", [4]) for at in (0, 1))
    called = parameters({"first": first, "second": second, "last": last})
    model = example(models, "bls_chain", "max_batch_size: 8\n" + pair + called)
    x = np.array([[1, 2, 3, 4]], np.float32)
    answer = infer(server, model, {"INPUT0": x})
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), x * 5)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), -x)


def test_a_chain_tells_what_its_models_fail_with(server, models):
    vector = {"dims": (4,), "input_name": "INPUT0", "output_name": "OUTPUT0"}
    bad, good = models.child("fail('out of order')", **vector), models.child("x", **vector)
    pair = tensor("input", "INPUT0", "FP32", [4]) + "".join(tensor("output", f"OUTPUT{at}", "FP32", [4]) for at in (0, 1))
    called = parameters({"first": good, "second": bad, "last": "nobody"})
    model = example(models, "bls_chain", "max_batch_size: 8\n" + pair + called)
    with pytest.raises(InferenceServerException, match="out of order"):
        infer(server, model, {"INPUT0": np.ones((1, 4), np.float32)})


FRACTAL = tensor("input", "POINTS", "FP32", [-1, 2]) + tensor("output", "ITERATIONS", "INT32", [-1])


def fractal(points: np.ndarray, limit: int) -> np.ndarray:
    """The number of steps for each point, in plain Python."""

    def steps(re: float, im: float) -> int:
        x = y = 0.0
        for step in range(limit):
            x, y = x * x - y * y + re, 2.0 * x * y + im
            if x * x + y * y > 4.0:
                return step
        return limit

    return np.array([steps(re, im) for re, im in points.tolist()], np.int32)


def test_threads_compute_what_one_thread_computes(server, models):
    points = np.random.default_rng(2).uniform(-2, 2, (5000, 2)).astype(np.float32)
    wanted = fractal(points, 200)
    assert 1 < len(np.unique(wanted)) and wanted.max() == 200
    for threads in ({}, {"threads": "1"}, {"threads": "3"}):
        model = example(models, "threads", FRACTAL + parameters({"limit": "200", **threads}))
        np.testing.assert_array_equal(infer(server, model, {"POINTS": points}).as_numpy("ITERATIONS"), wanted)


def test_threads_refuses_what_is_no_number(server, models):
    with pytest.raises(InferenceServerException, match="parameter threads is 'many'; a whole number"):
        example(models, "threads", FRACTAL + parameters({"threads": "many"}))


DECOUPLED = (
    "model_transaction_policy { decoupled: true }\n"
    + tensor("input", "COUNT", "INT32", [1])
    + tensor("output", "OUT", "INT32", [1])
)


class Stream:
    """The responses of a decoupled model to one request after another, over one gRPC stream."""

    def __init__(self, server, model: str):
        self.model, self.came = model, queue.Queue()
        self.client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        self.client.start_stream(lambda result, error: self.came.put((result, error)))

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.client.stop_stream(cancel_requests=True)
        self.client.close()

    def send(self, counts: list[int], request_id: str) -> None:
        given = tritonclient.grpc.InferInput("COUNT", [len(counts)], "INT32")
        given.set_data_from_numpy(np.array(counts, np.int32))
        self.client.async_stream_infer(self.model, [given], request_id=request_id, enable_empty_final_response=True)

    def next(self):
        result, error = self.came.get(timeout=60)
        if error is not None:
            raise error
        response = result.get_response()
        final = response.parameters["triton_final_response"].bool_param
        return response.id, None if final else int(result.as_numpy("OUT")[0])


def response_counts(found, *kinds: str) -> dict[str, tuple[int, ...]]:
    return {place: tuple(stats[kind]["count"] for kind in kinds) for place, stats in found["response_stats"].items()}


def test_a_stream_of_responses_comes_one_by_one_and_ends(server, models):
    model = example(models, "decoupled", DECOUPLED)
    with Stream(server, model) as stream:
        for count in (3, 0, 1):
            stream.send([count], f"count {count}")
            assert [stream.next() for _ in range(count + 1)] == [(f"count {count}", n) for n in (*range(count), None)]
    found = server.http().get_inference_statistics(model)["model_stats"][0]
    assert found["inference_stats"]["success"]["count"] == 3
    # By the place in the stream. Of the ends of the three streams, empty responses, each came at another place.
    wanted = {"0": (2, 1), "1": (1, 1), "2": (1, 0), "3": (0, 1)}
    assert response_counts(found, "success", "empty_response") == wanted
    assert response_counts(found, "compute_output", "fail") == {place: (count, 0) for place, (count, _) in wanted.items()}


def test_streams_run_side_by_side(server, models):
    """The first is still going when the second, which came later, has ended."""
    model = example(models, "decoupled", DECOUPLED + parameters({"pause_ms": "20"}))
    with Stream(server, model) as stream:
        stream.send([10_000], "long")
        assert stream.next() == ("long", 0)
        stream.send([2], "short")
        came = []
        while ("short", None) not in came:
            came.append(stream.next())
    assert [number for name, number in came if name == "short"] == [0, 1, None]
    assert ("long", None) not in came


def test_a_stream_that_fails_says_why(server, models):
    model = example(models, "decoupled", DECOUPLED.replace("dims: [1]", "dims: [-1]", 1))
    with Stream(server, model) as stream:
        stream.send([1, 2], "two numbers")
        with pytest.raises(InferenceServerException, match=r"COUNT is \[2\]; one number is accepted"):
            stream.next()
    found = server.http().get_inference_statistics(model)["model_stats"][0]
    assert response_counts(found, "success", "empty_response", "fail") == {"0": (0, 0, 1)}


def test_a_model_that_is_not_decoupled_cannot_stream(server, models):
    body = tensor("input", "COUNT", "INT32", [1]) + tensor("output", "OUT", "INT32", [1])
    model = example(models, "decoupled", body)
    with pytest.raises(InferenceServerException, match="decoupled"):
        infer(server, model, {"COUNT": np.array([2], np.int32)})

"""The floor of the backend API: on a server of exactly that version all loads and answers; an older one is refused in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import clients
import numpy as np
import pytest
import reference
from checks import assert_equals_monai
from conftest import watched
from models import ROOT, Repository
from test_examples import ADD_SUB, infer, parameters, tensor
from triton import Triton, backend_folder, setting
from tritonclient.utils import InferenceServerException

HEADER = (ROOT / "triton_backend_api" / "include" / "triton_abi.h").read_text()
FLOOR = tuple(int(re.search(rf"TRITON_ABI_BACKEND_{part} (\d+)", HEADER)[1]) for part in ("MAJOR", "MINOR"))


def older_server(packages: str, folder: Path) -> Triton:
    """The server in those site-packages, with its own Python backend, on an empty repository."""
    home = Path(setting(packages))
    backends = backend_folder(folder / "backends", home / "pytriton" / "tritonserver" / "backends")
    (folder / "models").mkdir()
    log = folder / "server.log"
    return watched(Triton(folder / "models", backends, log, "--model-control-mode=explicit", packages=home))


@pytest.fixture(scope="module")
def floor(tmp_path_factory) -> Iterator[Triton]:
    server = older_server("SPLEENSEG_FLOOR", tmp_path_factory.mktemp("floor"))
    try:
        yield server.start()
        assert server.stop() == 0, server.tail()
    finally:
        server.kill()


def load(server: Triton, name: str) -> str:
    server.http().load_model(name)
    return name


def test_the_examples_answer_on_the_floor(floor):
    write = Repository(floor.repository)
    body = "max_batch_size: 8\n" + tensor("input", "INPUT0", "FP32", [4]) + tensor("output", "OUTPUT0", "FP32", [4])
    for backend, text in (("identity", body + parameters({"label": "old"})), ("add_sub", ADD_SUB)):
        write.write(backend, f'name: "{backend}"\nbackend: "{backend}"\n{text}')
        load(floor, backend)
    called = {"first": "identity", "second": "identity", "last": "add_sub"}
    both = body + tensor("output", "OUTPUT1", "FP32", [4])
    write.write("bls_chain", 'name: "bls_chain"\nbackend: "bls_chain"\n' + both + parameters(called))
    load(floor, "bls_chain")
    x = np.array([[1, 2, 3, 4]], np.float32)
    answer = infer(floor, "identity", {"INPUT0": x})
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), x)
    assert answer.get_response()["parameters"]["label"] == "old"
    answer = infer(floor, "bls_chain", {"INPUT0": x})
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), 2 * x)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), 0 * x)


def test_spleen_seg_answers_on_the_floor(floor):
    write = Repository(floor.repository)
    model = load(floor, write.spleen(load(floor, write.child())))
    volume = reference.blobs((45, 40, 30), seed=7)[None]
    assert_equals_monai(clients.http(floor, model, volume), volume)


def test_an_older_server_is_refused_with_both_versions(tmp_path):
    server = older_server("SPLEENSEG_BELOW", tmp_path)
    major, minor = FLOOR
    body = tensor("input", "IN", "FP32", [4]) + tensor("output", "OUT", "FP32", [4])
    Repository(server.repository).write("identity", f'name: "identity"\nbackend: "identity"\n{body}')
    try:
        server.start()
        text = rf"server's backend API is {major}\.{minor - 1}; accepted is {major}\.{minor} or a later {major}\.x"
        with pytest.raises(InferenceServerException, match=text):
            load(server, "identity")
        assert server.stop() == 0, server.tail()
    finally:
        server.kill()

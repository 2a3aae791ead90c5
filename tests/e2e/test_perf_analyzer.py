"""perf_analyzer against the shipped repository, as the first request that the server ever gets."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from pathlib import Path

import pytest
from triton import setting

LIMIT_S = 400


@pytest.fixture(scope="module")
def fresh(start_server):
    server = start_server(Path(os.environ["SPLEENSEG_REPOSITORY"]))
    yield server
    assert server.stop() == 0, f"tritonserver did not end cleanly:\n{server.tail()}"


def run(*arguments: str, fails: bool = False) -> str:
    done = subprocess.run(
        [setting("SPLEENSEG_PERF_ANALYZER"), *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, text
    return text


# The first case must stay first: it is what a newcomer does.
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("transport", ["shared memory", "http", "grpc"])
def test_zero_volume_without_a_failure(fresh, transport, tmp_path):
    port = fresh.grpc_port if transport == "grpc" else fresh.http_port
    arguments = ["-m", "spleen_seg", "-u", f"localhost:{port}", "--input-data", "zero", "--shape", "INPUT0:512,512,114"]
    if transport == "grpc":
        arguments += ["-i", "grpc"]
    if transport == "shared memory":
        arguments += ["--shared-memory", "system"]
        client = fresh.http()
        statistics = client.get_inference_statistics("spleen_seg")["model_stats"][0]
        assert statistics["inference_stats"]["success"].get("count", 0) == 0, "this must be the server's first request"
    # One window of two requests: whether the times are stable is not the question here.
    arguments += ["--measurement-mode", "count_windows", "--measurement-request-count", "2", "-s", "999"]
    table = tmp_path / "latency.csv"
    text = run(*arguments, "-f", str(table), "--verbose-csv")
    assert not re.search(r"failed|error", text, re.IGNORECASE), text
    count = re.search(r"Request count: (\d+)", text)
    assert count and int(count.group(1)) > 0, text
    with table.open() as rows:
        assert float(next(csv.DictReader(rows))["Inferences/Second"]) > 0
    statistics = fresh.http().get_inference_statistics("spleen_seg")["model_stats"][0]["inference_stats"]
    assert statistics["success"]["count"] >= int(count.group(1))
    assert statistics["fail"].get("count", 0) == 0


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([], "INPUT0 contains dynamic shape"),
        (["--shape", "INPUT0:52,52,14"], None),
        (["--shape", "INPUT0:1,52,52,14"], "Expected [-1,-1,-1,-1], got [1,1,52,52,14]"),
    ],
    ids=["none", "a volume's", "with the batch axis"],
)
def test_shapes_without_the_batch_axis_are_the_right_ones(server, models, shape, said):
    """The tool's own random voxels, from 0 to 1, are all foreground."""
    model = models.pair()
    arguments = ["-m", model, "-u", f"localhost:{server.http_port}", "--measurement-mode", "count_windows"]
    text = run(*arguments, "--measurement-request-count", "2", "-s", "999", *shape, fails=said is not None)
    assert (said or "Successful request count") in text, text

"""The scripts that people run, on what is already installed and built."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
import tritonclient.http
from models import ROOT

READY_S = 300


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.timeout(READY_S + 120)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_serve_starts_and_stops(stop):
    process = subprocess.Popen(
        [str(ROOT / "scripts" / "serve.sh")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()
    port = None
    try:
        deadline = time.monotonic() + READY_S
        command = None
        while command is None:
            assert process.poll() is None and time.monotonic() < deadline, "serve.sh did not become ready"
            try:
                line = lines.get(timeout=1)
            except queue.Empty:
                continue
            command = line if "perf_analyzer" in line else None
        port = int(re.search(r"localhost:(\d+)", command).group(1))
        assert "--shared-memory system" in command and "INPUT0:512,512,114" in command
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert client.is_model_ready("spleen_seg") and client.is_model_ready("segmentation_3d")
        # What Ctrl-C does: the signal reaches the whole foreground group.
        os.killpg(process.pid, stop) if stop is signal.SIGINT else process.send_signal(stop)
        assert process.wait(60) == 0
        assert not ready(port)
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(45)
        except ProcessLookupError:
            pass
        process.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--http", "abc"), "--http is 'abc'; accepted is a port from 1 to 65535"),
        (("--grpc", "65536"), "--grpc is '65536'"),
        (("--metrics", "0"), "--metrics is '0'"),
        (("--repository", "nowhere"), "no such model repository: nowhere"),
    ],
)
def test_serve_refuses_wrong_arguments_before_it_does_anything(tmp_path, arguments, words):
    """The cache is an empty folder: whatever starts to install or build is caught by what it leaves there."""
    environment = os.environ | {"TRITON_SPLEENSEG_CACHE": str(tmp_path / "cache")}
    command = [str(ROOT / "scripts" / "serve.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 1 and done.stdout == "" and not (tmp_path / "cache").exists()
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ") and words in done.stderr


def test_model_repository_with_an_own_network(tmp_path):
    network = tmp_path / "own.pt"
    network.write_bytes(b"any bytes: this script only copies them")
    script = str(ROOT / "scripts" / "model_repository.sh")
    subprocess.run([script, str(tmp_path / "repository"), "--model", str(network)], check=True, timeout=60)
    written = {str(p.relative_to(tmp_path / "repository")) for p in (tmp_path / "repository").rglob("*") if p.is_file()}
    models = ("spleen_seg", "spleen_seg_native", "segmentation_3d")
    configs = {f"{model}/config.pbtxt" for model in models}
    assert written == {*configs, "segmentation_3d/configs/gpu.pbtxt", "segmentation_3d/1/model.pt"}
    assert (tmp_path / "repository" / "spleen_seg" / "1").is_dir()
    assert (tmp_path / "repository" / "segmentation_3d" / "1" / "model.pt").read_bytes() == network.read_bytes()
    # The Triton model layout: every model's configuration names its folder.
    for model in models:
        assert f'name: "{model}"' in (tmp_path / "repository" / model / "config.pbtxt").read_text()
    missing = subprocess.run([script, str(tmp_path / "r"), "--model", "/nowhere.pt"], capture_output=True, text=True, check=False)
    assert missing.returncode != 0 and "/nowhere.pt" in missing.stderr


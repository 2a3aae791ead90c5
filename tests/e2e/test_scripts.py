"""The scripts that people run, on what is already installed and built."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import tritonclient.http
from leaks import wait_for
from models import ROOT

READY_S = 300


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


class Serve:
    """A running scripts/serve.sh, which is ready."""

    def __init__(self, log: Path, *arguments: str):
        self.log = log
        with log.open("wb") as stderr:
            # Tests that run in the background begin with SIGINT ignored, which no shell can undo.
            self.process = subprocess.Popen(
                ["env", "--default-signal=INT", str(ROOT / "scripts" / "serve.sh"), *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line) for line in self.process.stdout], daemon=True).start()

    def line(self, word: str) -> str:
        """The next line of stdout with this word."""
        deadline = time.monotonic() + READY_S
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, f"serve.sh did not become ready:\n{self.said()[-4000:]}"
            try:
                line = self.lines.get(timeout=1)
            except queue.Empty:
                continue
            if word in line:
                return line

    def said(self) -> str:
        return self.log.read_text()


@contextmanager
def serving(log: Path, *arguments: str):
    serve = Serve(log, *arguments)
    try:
        yield serve
    finally:
        try:
            os.killpg(serve.process.pid, signal.SIGTERM)
            serve.process.wait(45)
        except ProcessLookupError:
            pass
        serve.process.stdout.close()


@pytest.fixture
def repository_copy(tmp_path) -> Path:
    """The shipped models, to be spoilt."""
    folder = tmp_path / "models"
    subprocess.run([str(ROOT / "scripts" / "model_repository.sh"), str(folder)], check=True, timeout=60)
    return folder


@pytest.mark.timeout(READY_S + 120)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_serve_starts_and_stops(stop, tmp_path):
    with serving(tmp_path / "log") as serve:
        command = serve.line("perf_analyzer")
        port = int(re.search(r"localhost:(\d+)", command).group(1))
        assert "--shared-memory system" in command and "INPUT0:512,512,114" in command
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert client.is_model_ready("spleen_seg") and client.is_model_ready("segmentation_3d")
        assert "warning" not in serve.said()
        # What Ctrl-C does: the signal reaches the whole foreground group.
        os.killpg(serve.process.pid, stop) if stop is signal.SIGINT else serve.process.send_signal(stop)
        assert serve.process.wait(60) == 0
        assert not ready(port)
        # What it said before its end, though the signal reached all of its group.
        assert "Stopping tritonserver. Open connections can hold it up to 30 s" in serve.said()
        # The server's own lines come through a pipe, whose reader may end after the script.
        wait_for(lambda: "All models are stopped" in serve.said(), why=serve.said)


@pytest.mark.timeout(READY_S + 120)
def test_serve_says_which_ports_it_took_and_what_is_not_ready(tmp_path, repository_copy):
    shutil.rmtree(repository_copy / "segmentation_3d")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # somebody else has it, which does as well
        with serving(tmp_path / "log", "--repository", str(repository_copy)) as serve:
            command = serve.line("segment.py")
            port = int(re.search(r"Port 8000 is in use, taking (\d+) \(http\)", serve.said()).group(1))
            assert f"scripts/segment.py --url localhost:{port} .." in command and f"Ready: HTTP 127.0.0.1:{port}" in serve.said()
            assert "warning: not ready: segmentation_3d, which spleen_seg and spleen_seg_native call\n" in serve.said()


@pytest.mark.parametrize("script", ["serve.sh", "demo.sh"])
def test_a_server_that_does_not_start_is_one_line_with_its_cause(tmp_path, repository_copy, script):
    config = repository_copy / "spleen_seg" / "config.pbtxt"
    text = config.read_text()
    assert '"-57"' in text
    config.write_text(text.replace('"-57"', '"-57 HU"'))
    command = [str(ROOT / "scripts" / script), "--repository", str(repository_copy)]
    command += ["--out", str(tmp_path / "out")] if script == "demo.sh" else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: tritonserver ended before it was ready: failed to load 'spleen_seg' version 1: ")
    assert 'parameter "a_min" is "-57 HU"' in error


def test_an_option_that_triton_lacks_is_named_last(repository_copy):
    command = [str(ROOT / "scripts" / "serve.sh"), "--repository", str(repository_copy), "--", "--nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: tritonserver ended before it was ready: unrecognized option '--nonsense'"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--http", "abc"), "--http is 'abc'; accepted is a port from 1 to 65535"),
        (("--grpc", "65536"), "--grpc is '65536'"),
        (("--metrics", "0"), "--metrics is '0'"),
        (("--repository", "nowhere"), "no such model repository: nowhere"),
        (("--http", "8123", "--grpc", "08123"), "--http and --grpc are both 8123; accepted are different ports"),
    ],
)
def test_serve_refuses_wrong_arguments_before_it_does_anything(tmp_path, arguments, words):
    """The cache is an empty folder: whatever starts to install or build is caught by what it leaves there."""
    environment = os.environ | {"TRITON_SPLEENSEG_CACHE": str(tmp_path / "cache")}
    command = [str(ROOT / "scripts" / "serve.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 1 and done.stdout == "" and not (tmp_path / "cache").exists()
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ") and words in done.stderr


def test_serve_refuses_a_given_port_that_is_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        test_serve_refuses_wrong_arguments_before_it_does_anything(
            tmp_path, ("--grpc", str(port)), f"--grpc {port}: port {port} is in use; accepted is a free one"
        )


@pytest.mark.parametrize("script", ["test.sh", "setup.sh"])
def test_help_is_the_header_of_the_script(tmp_path, script):
    environment = os.environ | {"TRITON_SPLEENSEG_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([str(ROOT / "scripts" / script), "--help"], capture_output=True, text=True, timeout=60, env=environment, check=True)
    assert done.stdout.startswith(f"Usage: scripts/{script} [") and "source" not in done.stdout and done.stderr == ""
    unknown = subprocess.run([str(ROOT / "scripts" / script), "nobody"], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert unknown.returncode == 1 and len(unknown.stderr.splitlines()) == 1 and "'nobody'" in unknown.stderr
    assert not (tmp_path / "cache").exists()


def shell(tmp_path: Path, commands: str) -> list[str]:
    """What these commands say with the scripts' functions, where nothing is installed or built."""
    libraries = " ".join(f'source "$ROOT/scripts/lib/{name}.sh";' for name in ("environments", "build", "release"))
    code = f'source "{ROOT}/scripts/lib/common.sh"; {libraries} {commands}'
    cache = {"TRITON_SPLEENSEG_CACHE": str(tmp_path / "cache"), "CARGO_TARGET_DIR": str(tmp_path / "target")}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, env=os.environ | cache, check=True)
    return done.stderr.splitlines()


def test_what_is_to_be_compiled_is_said_once(tmp_path):
    said = shell(tmp_path, "announce_builds; announce_torchscript_build backend")
    assert len(said) == 2 and "libtriton_spleenseg.so" in said[0] and "the bindings to libtorch" in said[1]
    said = shell(tmp_path, "announce_torchscript_build cli; announce_release_build")
    assert len(said) == 3 and "the bindings" in said[0] and "spleenseg-cli" in said[1] and "libtriton_spleenseg.so as it is released" in said[2]
    built = 'target=$(torchscript_target); mkdir -p "$target"; echo {} >"$target/built_for"; announce_torchscript_build backend'
    assert shell(tmp_path, built.format("backend")) == []
    said = shell(tmp_path, built.format("cli"))
    assert len(said) == 1 and said[0].startswith("To be compiled anew: libtriton_pytorch.so")


@pytest.fixture
def two_checkouts(tmp_path) -> str:
    """Two folders, `first` and `second`, of a program that says its name; and the command that builds and starts it."""
    for name in ("first", "second"):
        root = tmp_path / name
        (root / "src").mkdir(parents=True)
        (root / "src" / "main.rs").write_text(f'fn main() {{ eprintln!("{name}") }}\n')
        (root / "Cargo.toml").write_text('[package]\nname = "program"\nversion = "0.1.0"\n[workspace]\n')
        (root / "Cargo.lock").write_text('version = 4\n\n[[package]]\nname = "program"\nversion = "0.1.0"\n')
    return 'cd "$ROOT" && cargo build --quiet --release --locked && "$CARGO_TARGET_DIR/release/program"'


def test_a_folder_that_two_checkouts_compile_in_gives_each_its_own(two_checkouts, tmp_path):
    """Cargo alone gives the second, whose sources are older than the first one's object, that object."""
    commands = [f"ROOT={tmp_path / name}; {{clean}} {two_checkouts}" for name in ("first", "second", "first")]
    shared = "; ".join(command.format(clean="clean_of_other_checkouts;") for command in commands)
    assert shell(tmp_path / "cleaned", shared) == ["first", "second", "first"]
    alone = "; ".join(command.format(clean="") for command in commands)
    assert shell(tmp_path / "alone", alone) == ["first"] * 3, "cargo tells checkouts apart by itself: clean_of_other_checkouts is no longer needed"


def test_a_folder_that_cannot_be_cleared_gives_nothing_of_another_checkout(two_checkouts, tmp_path):
    """Also in a condition, where bash goes on after what fails."""
    commands = f"""torchscript_target() {{ printf '%s\\n' "$CARGO_TARGET_DIR"; }}
        torchscript_cargo_environment() {{ clean_of_other_checkouts; }}
        build() {{ {two_checkouts}; }}
        ROOT={tmp_path / "first"}; with_torchscript_target build
        cargo() {{ [[ $1 != clean ]] && command cargo "$@"; }}
        ROOT={tmp_path / "second"}; with_torchscript_target build || echo refused >&2"""
    assert shell(tmp_path, commands) == ["first", "refused"]


def test_of_two_checkouts_the_second_waits_until_the_first_has_what_it_built(two_checkouts, tmp_path):
    said = tmp_path / "said"
    commands = f"""torchscript_target() {{ printf '%s\\n' "$CARGO_TARGET_DIR"; }}
        torchscript_cargo_environment() {{ clean_of_other_checkouts; }}
        until_there() {{ until grep -qs "$1" {said}; do sleep 0.1; done; }}
        build() {{ {two_checkouts}; }}
        build_slowly() {{ cargo build --quiet --release --locked; echo built >>{said}; until_there waiting; build; }}
        (ROOT={tmp_path / "second"}; until_there built; with_torchscript_target build 2>>{said}) &
        ROOT={tmp_path / "first"}; with_torchscript_target build_slowly; wait; cat {said} >&2"""
    first, built, waiting, second = shell(tmp_path, commands)
    assert (first, built, second) == ("first", "built", "second") and waiting.startswith("waiting for another run of these scripts")


@pytest.mark.parametrize(("ahead", "holder"), [("$!", "its installation in the background"), ("", "another run of these scripts")])
def test_a_run_that_waits_says_for_whom(tmp_path, ahead, holder):
    said = tmp_path / "said"
    commands = f"""install_environment() {{ :; }}
        lock=$CACHE/locks/env-lint; mkdir -p "$CACHE/locks"
        flock "$lock" bash -c 'until grep -q waiting {said}; do sleep 0.1; done' 2>/dev/null & AHEAD={ahead}
        while flock -n "$lock" true; do sleep 0.1; done
        install_environments lint 2>{said}; cat {said} >&2"""
    assert shell(tmp_path, commands) == [f"waiting for {holder} (env-lint)"]


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


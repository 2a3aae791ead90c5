"""A stock tritonserver of the bundle, and a client of the protocol's own words: no package is needed for either."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from .check import Check, die_with_parent
from .needs import library_path
from .regions import SHM, Region

TYPES = {"FP32": np.float32, "UINT8": np.uint8}
START_S = ANSWER_S = 120
# Of a server that may hang: for each region, and for its end.
UNREGISTER_S, EXIT_S = 5, 15
# What Triton always says where there is no GPU.
HARMLESS = "CudaDriverHelper|NVML"
# This machine's own server, whatever proxy the environment names.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`with Server(...) as server:`; ready within, gone after."""

    def __init__(self, check: Check, repository: Path, name: str, *options: str, libraries: Sequence[Path] = ()):
        self.port, self.log = free_port(), check.log(name)
        triton = check.bundle / "triton"
        executable = triton / "bin" / "tritonserver"
        self.command = [
            str(executable),
            f"--model-repository={repository}",
            f"--backend-directory={check.backends}",
            "--http-address=127.0.0.1",
            f"--http-port={self.port}",
            "--allow-grpc=false",
            "--allow-metrics=false",
            "--exit-timeout-secs=10",
            *options,
        ]
        # The Python backend's stub embeds this Python, which it takes to be the first python3 on PATH.
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": library_path(check.bundle, *libraries),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        self.process: subprocess.Popen | None = None
        self.ready_s = 0.0

    def __enter__(self) -> Server:
        began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        try:
            self._wait(began)
        except BaseException:
            self.__exit__()
            raise
        self.ready_s = time.monotonic() - began
        return self

    def _wait(self, began: float) -> None:
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"tritonserver ended with code {self.process.returncode}: {self.reason()}")
            try:
                HTTP.open(f"http://127.0.0.1:{self.port}/v2/health/ready", timeout=2).close()
                return
            except OSError:
                if time.monotonic() - began > START_S:
                    raise RuntimeError(f"tritonserver was not ready after {START_S} s: {self.reason()}") from None
                time.sleep(0.05)

    def __exit__(self, *_exc) -> None:
        try:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(EXIT_S)
        finally:
            left = self._shared_with_stubs() if self.process.poll() is None else set()
            # Its stubs too.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for path in left:
                path.unlink(missing_ok=True)

    def _shared_with_stubs(self) -> set[Path]:
        """What it has in /dev/shm for the Python backend, which a server that is killed leaves there."""
        with suppress(OSError):
            maps = Path(f"/proc/{self.process.pid}/maps").read_text()
            return {Path(path) for path in re.findall(rf"({SHM}/triton_python_backend_\S+)$", maps, re.MULTILINE)}
        return set()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def reason(self) -> str:
        """The first line of the log that tells of an error, since others follow from it; and where the log is."""
        errors = re.findall(r"^(?:E\d|.*\berror\b).*", self.text(), re.IGNORECASE | re.MULTILINE)
        lines = [line for line in errors if not re.search(HARMLESS, line)]
        return f"{lines[0].strip() if lines else 'its log tells of no error'} (log: {self.log})"

    def ask(self, path: str, body: bytes | None = None, headers: dict | None = None, seconds: float = ANSWER_S) -> tuple[bytes, dict]:
        """GET without a body, POST with one."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v2/{path}", data=body, headers=headers or {})
        try:
            with HTTP.open(request, timeout=seconds) as reply:
                return reply.read(), {key.lower(): value for key, value in reply.headers.items()}
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            with suppress(ValueError, KeyError, TypeError):
                said = json.loads(said)["error"]
            raise RuntimeError(said) from None
        except OSError as error:
            raise RuntimeError(f"tritonserver does not answer ({error}): {self.reason()}") from None

    def statistics(self, model: str) -> dict[str, tuple[int, float]]:
        """How often and how many milliseconds in all, by what Triton counts."""
        counted = json.loads(self.ask(f"models/{model}/stats")[0])["model_stats"][0]["inference_stats"]
        return {name: (int(entry.get("count", 0)), int(entry.get("ns", 0)) / 1e6) for name, entry in counted.items()}

    @contextmanager
    def region(self, kind: type[Region] | None, byte_size: int):
        """A region that the server knows; None where the request itself carries the bytes."""
        if kind is None:
            yield None
            return
        region = kind(byte_size)
        try:
            self.ask(f"{region.path}/region/{region.name}/register", json.dumps(region.description()).encode())
            try:
                yield region
            except Exception:
                # What went wrong is what is told. A part that is interrupted does not come here: it ends the server, which may hang.
                with suppress(RuntimeError):
                    self._unregister(region)
                raise
            self._unregister(region)
        finally:
            region.close()

    def _unregister(self, region: Region) -> None:
        self.ask(f"{region.path}/region/{region.name}/unregister", b"", seconds=UNREGISTER_S)

    def infer(
        self, model: str, volume: np.ndarray, outputs: dict, source: Region | None = None, tensor: str = "INPUT0"
    ) -> tuple[dict, dict]:
        """Arrays by name, and the response's parameters. `outputs` are regions by name, None for the response itself;
        `source` is the region that the volume lies in, None for the request itself. What lies in a region is not read."""
        given = {"name": tensor, "shape": list(volume.shape), "datatype": "FP32"}
        given["parameters"] = use(source, volume.nbytes) if source else {"binary_data_size": volume.nbytes}
        wanted = [
            {"name": name, "parameters": use(region, region.byte_size) if region else {"binary_data": True}}
            for name, region in outputs.items()
        ]
        head = json.dumps({"inputs": [given], "outputs": wanted}).encode()
        body = head if source else b"".join((head, volume.tobytes()))
        content, headers = self.ask(f"models/{model}/infer", body, {"Inference-Header-Content-Length": str(len(head))})
        at = int(headers.get("inference-header-content-length", len(content)))
        answer = json.loads(content[:at])
        arrays = {}
        for output in answer["outputs"]:
            if (size := output.get("parameters", {}).get("binary_data_size")) is not None:
                array = np.frombuffer(content, TYPES[output["datatype"]], int(np.prod(output["shape"])), at)
                arrays[output["name"]] = array.reshape(output["shape"])
                at += size
        return arrays, answer.get("parameters", {})


def use(region: Region, byte_size: int) -> dict:
    return {"shared_memory_region": region.name, "shared_memory_byte_size": byte_size}

"""A real tritonserver for the tests: started on free ports, bounded in time, always stopped."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tritonclient.grpc
import tritonclient.http


def setting(name: str) -> str:
    """A path that scripts/test.sh hands over."""
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set: run these tests with scripts/test.sh e2e [pytest arguments]")
    return value


def backend_folder(where: Path, stock_backends: Path | None = None) -> Path:
    """Our backends, the examples, and the stock Python backend for child models that do what a test wants them to do."""
    where.mkdir()
    folders = [setting("SPLEENSEG_BACKENDS"), os.environ.get("SPLEENSEG_EXAMPLES")]
    for backend in (backend for folder in folders if folder for backend in Path(folder).iterdir()):
        (where / backend.name).symlink_to(backend.resolve())
    stock = (stock_backends or Path(setting("SPLEENSEG_STOCK_BACKENDS"))) / "python"
    shutil.copytree(stock, where / "python")
    # The Triton from PyPI keeps its stubs, one for each Python version, outside the backends folder.
    stub = where / "python" / "triton_python_backend_stub"
    if not stub.exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        shutil.copy(stock.parent.parent / "python_backend_stubs" / version / stub.name, stub)
    stub.chmod(0o755)
    return where


def sanitizer() -> dict[str, str]:
    """What makes a server with backends under AddressSanitizer: its runtime comes first, and what leaks in the server is its own."""
    runtime = os.environ.get("SPLEENSEG_ADDRESS_SANITIZER")
    return {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"} if runtime else {}


_claims: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Ports that nobody takes until this process ends: from below those that the system gives to connections, and each claimed by a
    name that one socket of this machine can have."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(10_000, max(first, 20_000)))
    random.SystemRandom().shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0spleenseg_test_port_{port}")
            with socket.socket() as tried:
                tried.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        ports.append(port)
    return ports


class Triton:
    """One server process. `with Triton(...) as server:` or start() and stop()."""

    def __init__(
        self, repository: Path, backends: Path, log: Path, *arguments: str, start_s: float = 240, packages: Path | None = None
    ):
        """`packages` are the site-packages with another Triton than the one under test."""
        self.repository = repository
        self.log = log
        self.libraries = packages / "nvidia_pytriton.libs" if packages else Path(setting("SPLEENSEG_TRITON_LIBRARIES"))
        executable = packages / "pytriton/tritonserver/bin/tritonserver" if packages else Path(setting("SPLEENSEG_TRITON"))
        if packages:
            executable.chmod(executable.stat().st_mode | 0o111)  # pip does not keep the bit of package data
        self.start_s = start_s
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        self.command = [
            str(executable),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            "--http-address=127.0.0.1",
            f"--http-port={self.http_port}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={self.grpc_port}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={self.metrics_port}",
            *arguments,
        ]
        self.process: subprocess.Popen | None = None
        self.clients: list = []

    def mount(self, source: str) -> None:
        """Gives the server a /dev/shm of its own: the options and source of `mount`. Skips the test where that cannot be."""
        namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount {source} /dev/shm && exec "$@"', "sh"]
        if subprocess.run([*namespace, "true"], capture_output=True).returncode:
            pytest.skip("no mount namespace can be made here")
        self.command = namespace + self.command

    def environment(self) -> dict[str, str]:
        # The Python backend's stub embeds this Python: it needs libpython and, first on PATH, this environment's python3.
        libraries = [str(self.libraries), sysconfig.get_config_var("LIBDIR") or ""]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, **sanitizer(), "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)), "PATH": path}

    def start(self) -> Triton:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own, so that stop() reaches the stubs too, and Ctrl-C in pytest reaches us first.
                start_new_session=True,
            )
        deadline = time.monotonic() + self.start_s
        while not self.ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"tritonserver ended with code {self.process.returncode} before it was ready:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"tritonserver was not ready after {self.start_s} s:\n{self.tail()}")
            time.sleep(0.1)
        return self

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/health/ready", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, within_s: float = 60) -> int:
        """Asks the server to end and returns its exit code; a server that does not obey is killed and is an error."""
        if self.process is None:
            return 0
        # Triton waits for open HTTP connections, up to its exit timeout of 30 s.
        self.close_clients()
        try:
            if self.alive():
                self.process.send_signal(signal.SIGTERM)
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"tritonserver did not end within {within_s} s:\n{self.tail()}") from None
        finally:
            self.kill()

    def close_clients(self, kept: int = 0) -> None:
        """Closes all but the first ones."""
        for client in self.clients[kept:]:
            client.close()
        del self.clients[kept:]

    def kill(self) -> None:
        self.close_clients()
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.text().splitlines()[-lines:])

    def http(self, timeout_s: float = 120) -> tritonclient.http.InferenceServerClient:
        client = tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{self.http_port}", connection_timeout=timeout_s, network_timeout=timeout_s, concurrency=4
        )
        self.clients.append(client)
        return client

    def grpc(self) -> tritonclient.grpc.InferenceServerClient:
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}")
        self.clients.append(client)
        return client

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as reply:
            return reply.read().decode()

    def __enter__(self) -> Triton:
        return self.start()

    def __exit__(self, *_exc) -> None:
        self.stop()

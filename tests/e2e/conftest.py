"""Fixtures of the end-to-end tests: real servers, one for each model repository, and what a failure shows of their logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from checks import TRIED
from leaks import Held, at_rest, wait_for
from models import ROOT, Repository
from triton import Triton, backend_folder

DATA = Path(os.environ.get("SPLEENSEG_TEST_DATA") or ROOT.parent / "shared" / "data")

_servers: list[Triton] = []


def watched(server: Triton) -> Triton:
    """Registers a server whose log a failing test shows."""
    _servers.append(server)
    return server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    item.log_sizes = {id(s): len(s.text()) for s in _servers}
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for number, server in enumerate(_servers):
            new = server.text()[item.log_sizes.get(id(server), 0) :]
            if new:
                report.sections.append((f"tritonserver {number} ({server.repository})", "\n".join(new.splitlines()[-80:])))
    return report


def pytest_terminal_summary(terminalreporter):
    """Figures that tests recorded: for a reader, and no assertion."""
    if TRIED:
        terminalreporter.section("faults tried")
        terminalreporter.write_line(", ".join(f"{count} {what}" for what, count in TRIED.items()))
    recorded = [(report.nodeid, *figure) for reports in terminalreporter.stats.values() for report in reports for figure in getattr(report, "user_properties", []) if report.when == "call"]
    if recorded:
        terminalreporter.section("recorded figures")
        for node, name, value in recorded:
            terminalreporter.write_line(f"{node.rpartition('/')[2]}: {name}: {value}")


@pytest.fixture(scope="session")
def backends(tmp_path_factory) -> Path:
    return backend_folder(tmp_path_factory.mktemp("triton") / "backends")


@pytest.fixture(scope="session")
def start_server(tmp_path_factory, backends) -> Iterator:
    """Starts a server on a repository; all of them are stopped when the session ends, whatever happened."""
    started: list[Triton] = []

    def start(repository: Path, *arguments: str) -> Triton:
        log = tmp_path_factory.mktemp("server") / "server.log"
        server = watched(Triton(repository, backends, log, *arguments))
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def server(start_server, tmp_path_factory) -> Iterator[Triton]:
    """The server of most tests. It starts empty; tests load the models that they write."""
    server = start_server(tmp_path_factory.mktemp("repository"), "--model-control-mode=explicit", "--log-verbose=0")
    yield server
    assert server.stop() == 0, f"tritonserver did not end cleanly:\n{server.tail()}"


class Loader:
    """Writes models and loads them into the server; what one test loaded is gone after it."""

    def __init__(self, server: Triton, repository: Repository, two_classes: str):
        self.server = server
        self.write = repository
        self.two_classes = two_classes
        self.client = server.http()
        self.loaded: list[str] = []

    def load(self, name: str) -> str:
        self.client.load_model(name)
        self.loaded.append(name)
        return name

    def unload(self, name: str, rests: bool = True) -> None:
        """`rests`: nobody else calls the server now.

        Stock Triton 2.51 ends with SIGSEGV where a model goes whose thread has not come back from the load yet, which on a busy machine it
        may not have for a while (TritonBackendThread: the last of an empty queue of instances). A server at rest has no such thread.
        """
        if rests and self.server.alive():
            wait_for(lambda: at_rest(self.server.process.pid))
        self.client.unload_model(name)
        if name in self.loaded:
            self.loaded.remove(name)

    def child(self, *arguments, **options) -> str:
        return self.load(self.write.child(*arguments, **options))

    def spleen(self, *arguments, **options) -> str:
        return self.load(self.write.spleen(*arguments, **options))

    def pair(self, parameters: dict[str, str] | None = None, **options) -> str:
        """spleen_seg with the two-class child that all tests share."""
        return self.spleen(self.two_classes, parameters, **options)


@pytest.fixture(scope="session")
def repository(server) -> Repository:
    return Repository(server.repository)


@pytest.fixture(scope="session")
def two_classes(server, repository) -> str:
    """A child that stays loaded: each one costs the start of a Python process."""
    name = repository.child()
    server.http().load_model(name)
    return name


@pytest.fixture(scope="session")
def commanded(server, repository) -> str:
    """A network that does what each request's id says, in two processes. It stays loaded too."""
    name = repository.commanded(instances=2)
    server.http().load_model(name)
    return name


@pytest.fixture(scope="module")
def nothing_is_left(server, two_classes, commanded) -> Iterator[None]:
    """After a module's tests the server holds what it held before them."""
    held = Held(server)
    yield
    held.assert_back()


@pytest.fixture
def in_background() -> Iterator:
    """Runs calls in threads of their own; none outlives its test."""
    with ThreadPoolExecutor(64) as pool:
        yield pool.submit


@pytest.fixture
def models(server, repository, two_classes) -> Iterator[Loader]:
    loader = Loader(server, repository, two_classes)
    yield loader
    for name in loader.loaded[::-1]:
        try:
            loader.unload(name)
        except tritonclient.http.InferenceServerException:
            if server.alive():
                raise
    loader.client.close()


@pytest.fixture(scope="session")
def shipped(start_server) -> Iterator[Triton]:
    """The shipped model repository as scripts/model_repository.sh writes it, with its 224-cubed network."""
    server = start_server(Path(os.environ["SPLEENSEG_REPOSITORY"]))
    yield server
    assert server.stop() == 0, f"tritonserver did not end cleanly:\n{server.tail()}"


@pytest.fixture(scope="session")
def real_ct() -> np.ndarray:
    """A real abdominal CT in Hounsfield units, [H,W,D]."""
    path = DATA / "ct_abdomen_3mm.nii.gz"
    if not path.exists():
        pytest.skip(f"no real CT: {path} is absent (SPLEENSEG_TEST_DATA names its folder)")
    import nibabel

    return np.ascontiguousarray(np.asarray(nibabel.load(path).dataobj), dtype=np.float32)

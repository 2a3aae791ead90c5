"""Nothing crosses, nothing is lost, nothing creeps: a short soak, and the library replaced between loading and unloading."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import clients
import numpy as np
import pytest
from checks import assert_equals_monai
from conftest import watched
from holdings import HeldAndMapped, anonymous_bytes
from leaks import loaded, wait_for
from models import Repository
from soak import DRIFT_FLOOR_BYTES, DRIFT_PERCENT, ROUND, Soak, verdict
from soak_cases import BAD_OF, CANCELLED, IN_SHARED_MEMORY, NETWORK, WRONG, marked, torchscript
from triton import Triton, backend_folder

CYCLES = 25
SETTLED = 5  # cycles after which nothing may grow


@pytest.mark.timeout(1200)
def test_a_soak_crosses_loses_and_keeps_nothing(tmp_path, backends):
    (tmp_path / "models").mkdir()
    with Soak(tmp_path / "models", backends, tmp_path) as soak:
        watched(soak.server)
        soak.prepare()
        soak.round()
        soak.finish()
    report = soak.report()
    assert not verdict(report), report
    assert report["requests"] == ROUND and report["bad"] == ROUND // BAD_OF
    assert set(report["counts"]["bad"]) == WRONG.keys() | IN_SHARED_MEMORY.keys() | CANCELLED.keys()
    assert len(report["counts"]["protocol"]) == 6 and len(report["counts"]["model"]) == 3


class Replaceable:
    """A server whose library is a file of its own, and one model on it. Another build is the same code with another build id."""

    def __init__(self, where: Path):
        folder = backend_folder(where / "backends") / "spleenseg"
        self.original = folder.resolve() / "libtriton_spleenseg.so"
        folder.unlink()
        folder.mkdir()
        self.library = folder / self.original.name
        shutil.copy(self.original, self.library)
        self.repository = Repository(where / "models")
        self.repository.root.mkdir()
        child = torchscript(self.repository, where)
        self.model = self.repository.spleen(child)
        self.names = (child, self.model)
        self.server = watched(Triton(self.repository.root, folder.parent, where / "server.log", "--model-control-mode=explicit"))

    def load(self) -> None:
        client = self.server.http()
        for name in self.names:
            client.load_model(name)

    def unload(self) -> None:
        for name in reversed(self.names):
            self.server.http().unload_model(name)
        wait_for(lambda: not loaded(self.server), 60)
        self.server.close_clients()

    def build_id(self, number: int) -> str:
        """Of the build that answers request `number`, whose answer is right."""
        volume = marked(number)[None].astype(np.float32)
        answer = clients.http(self.server, self.model, volume)
        assert_equals_monai(answer, volume, NETWORK)
        return answer.parameters["build_id"]

    def another_build(self, build: str, file: Path) -> str:
        other = build[:-8] + "0badcafe"
        content = self.original.read_bytes()
        assert other != build and build.encode() in content
        file.write_bytes(content.replace(build.encode(), other.encode()))
        return other


@pytest.fixture
def replaceable(tmp_path):
    made = Replaceable(tmp_path)
    yield made
    made.server.kill()


@pytest.mark.timeout(600)
def test_loading_with_the_library_replaced_in_between(replaceable):
    """As install.sh does it: a new file takes the name. The server keeps the code that it has, and a new one has the new code."""
    server, new = replaceable.server.start(), replaceable.library.with_suffix(".new")
    first = held = settled = None
    for cycle in range(CYCLES):
        replaceable.load()
        build = replaceable.build_id(cycle)
        first = first or build
        assert build == first, "the code of a server that runs has changed"
        # Turn and turn about: another build, and the same one in another file.
        if cycle % 2 == 0:
            other = replaceable.another_build(first, new)
        else:
            shutil.copy(replaceable.original, new)
        os.replace(new, replaceable.library)
        assert replaceable.build_id(CYCLES + cycle) == first
        replaceable.unload()
        if cycle + 1 == SETTLED:
            held, settled = HeldAndMapped(server), anonymous_bytes(server.process.pid)
    held.assert_back()
    assert anonymous_bytes(server.process.pid) - settled < max(DRIFT_PERCENT / 100 * settled, DRIFT_FLOOR_BYTES)
    assert server.stop() == 0, server.tail()
    # The last one was another build.
    server.start()
    replaceable.load()
    assert replaceable.build_id(0) == other
    assert server.stop() == 0, server.tail()


def test_copying_onto_the_library_in_use_ends_the_server(replaceable):
    """What docs/reliability.md warns of: `cp` writes into the file that is mapped, and takes from the process what the loader made of it."""
    with replaceable.server as server:
        replaceable.load()
        replaceable.build_id(0)
        shutil.copyfile(replaceable.original, replaceable.library)
        with pytest.raises(Exception, match=r"(?i)connection|closed|reset|response"):
            replaceable.build_id(1)
        assert server.process.wait(60) < 0

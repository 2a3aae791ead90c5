"""docs/sizing.md: the memory that requests in flight take is what its formula says, and no more."""

from __future__ import annotations

import re
import sys
import uuid

import numpy as np
import pytest
import tritonclient.http
import tritonclient.utils.shared_memory as shared_memory
from models import ROOT, Repository

sys.path.insert(0, str(ROOT / "scripts"))

from bench.memory import anonymous_bytes  # noqa: E402: found through the line above

MB = 1e6
SIZE = (224, 224, 224)
SHAPE = (1, 256, 256, 100)
PAGE = (ROOT / "docs" / "sizing.md").read_text()


def documented(row: str) -> float:
    """The MB of a row of the table of what a request takes."""
    return float(re.search(rf"^\| {re.escape(row)}.*?\| ([0-9]+) \|", PAGE, re.MULTILINE).group(1))


KEPT = documented("kept by an instance")
GATHERED = np.prod(SHAPE) * 4 / MB


@pytest.mark.parametrize(("instances", "in_flight", "transport"), [(1, 1, "shared memory"), (2, 2, "HTTP")])
def test_requests_in_flight_take_what_the_page_says(start_server, tmp_path, instances, in_flight, transport):
    repository = Repository(tmp_path)
    child = repository.child()
    model = repository.spleen(child, {"max_in_flight": str(in_flight), "threads": "2"}, size=SIZE, data_type="TYPE_UINT8")
    config = tmp_path / model / "config.pbtxt"
    config.write_text(re.sub(r"count: 1", f"count: {instances}", config.read_text()))
    server = start_server(tmp_path)
    volume = np.random.default_rng(1).uniform(-200, 300, SHAPE).astype(np.float32)
    at_once = instances * in_flight
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}", concurrency=at_once, network_timeout=280)
    given = tritonclient.http.InferInput("INPUT0", SHAPE, "FP32")
    key = f"/spleenseg_sizing_{uuid.uuid4().hex[:12]}"
    region = shared_memory.create_shared_memory_region("sizing", key, volume.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [volume])
        client.register_system_shared_memory("sizing", key, volume.nbytes)
        given.set_shared_memory("sizing", volume.nbytes) if transport == "shared memory" else given.set_data_from_numpy(volume)
        before = anonymous_bytes([server.process.pid])
        for _ in range(3):
            for answer in [client.async_infer(model, [given]) for _ in range(at_once)]:
                answer.get_result()
        grown = (anonymous_bytes([server.process.pid]) - before) / MB
    finally:
        client.unregister_system_shared_memory()
        shared_memory.destroy_shared_memory_region(region)
        client.close()
    promised = at_once * (KEPT + (GATHERED if transport == "HTTP" else 0))
    # Some 40 MB are the server's own, whatever the requests.
    assert grown < 1.1 * promised + 40, f"{promised:.0f} MB by the page"
    server.stop()

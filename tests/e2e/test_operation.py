"""What operators see: metrics, the log, warm-up in any order, and shadow mode."""

from __future__ import annotations

import re

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from checks import assert_equals_monai, expected
from leaks import loaded, wait_for
from models import SIZE, TWO_CLASSES, Repository

Refused = tritonclient.http.InferenceServerException
SAME_SHAPE = (-1, -1, -1)


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((50, 41, 37), seed=61)[None]


def metric(server, name: str, model: str, **labels) -> float:
    """The value of a metric of a model: 0 where it is not there."""
    wanted = {"model": model, **labels}
    for line in server.metrics().splitlines():
        found = re.fullmatch(rf"{name}{{(.*)}} (\S+)", line)
        if found and wanted.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found.group(1))).items():
            return float(found.group(2))
    return 0.0


def test_steps_bytes_and_volumes_are_counted(server, models, volume):
    model = models.pair(data_type="TYPE_UINT8")
    for _ in range(3):
        clients.http(server, model, volume)
    for step in ("read", "foreground", "resize", "network", "argmax", "components", "count", "contour", "write"):
        assert metric(server, "spleenseg_step_duration_seconds_count", model, step=step) == 3, step
        assert metric(server, "spleenseg_step_duration_seconds_sum", model, step=step) >= 0
    assert metric(server, "spleenseg_step_duration_seconds_count", model, step="restore") == 0
    assert metric(server, "spleenseg_input_bytes_total", model, version="1") == 3 * volume.nbytes
    assert metric(server, "spleenseg_output_bytes_total", model) == 3 * 2 * np.prod(SIZE)
    assert metric(server, "spleenseg_volumes_total", model) == 3
    assert metric(server, "spleenseg_empty_masks_total", model) == 0


def test_empty_masks_and_failures_by_kind_are_counted(server, models, volume):
    model = models.spleen(models.child("np.concatenate([x + 1, x], axis=1)"))
    clients.http(server, model, volume)
    assert metric(server, "spleenseg_empty_masks_total", model) == metric(server, "spleenseg_volumes_total", model) == 1
    air = np.full_like(volume, -1000.0)
    for _ in range(2):
        with pytest.raises(Refused):
            clients.http(server, model, air, request_id="all-air")
    missing = models.spleen("not_there")
    with pytest.raises(Refused):
        clients.http(server, missing, volume, request_id="no-network")
    assert metric(server, "spleenseg_failures_total", model, stage="prepare", code="invalid_arg") == 2
    assert metric(server, "spleenseg_failures_total", missing, stage="segment", code="unavailable") == 1
    # One line a failure: id, stage, reason.
    lines = server.text().splitlines()
    assert len([line for line in lines if "'all-air' failed in prepare: volume 0" in line]) == 2
    assert len([line for line in lines if "'no-network' failed in segment: " in line and "not_there" in line]) == 1


WARMUP = """
model_warmup [ {
  name: "zeros" batch_size: 1
  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 40, 30, 20 ] zero_data: true } }
} ]
"""


def test_a_warm_up_needs_no_network_and_refuses_no_load(start_server, tmp_path, volume):
    """spleen_seg loads and warms up first; segmentation_3d comes later."""
    repository = Repository(tmp_path / "models")
    child = repository.child()
    model = repository.spleen(child, extra=WARMUP)
    server = start_server(repository.root, "--model-control-mode=explicit", f"--load-model={model}")
    client = server.http()
    assert client.is_model_ready(model) and not client.is_model_ready(child)
    (line,) = [line for line in server.text().splitlines() if "warm-up" in line and child in line]
    assert line.startswith("I"), line
    # From then on a missing network is an error again.
    with pytest.raises(Refused, match=child) as refused:
        clients.http(server, model, volume)
    assert refused.value.status() == "503"
    client.load_model(child)
    assert_equals_monai(clients.http(server, model, volume), volume)
    assert server.stop() == 0


def test_a_warm_up_with_its_network_there_runs_it(start_server, tmp_path):
    repository = Repository(tmp_path / "models")
    child = repository.child()
    model = repository.spleen(child, extra=WARMUP)
    server = start_server(repository.root, "--model-control-mode=explicit", "--log-verbose=1", f"--load-model={child}")
    server.http().load_model(model)

    def successes() -> int:
        (statistics,) = server.http().get_inference_statistics(child)["model_stats"]
        return statistics["inference_stats"]["success"].get("count", 0)

    # Stock Python models are counted some time after they have answered.
    wait_for(lambda: successes() == 1)
    assert server.stop() == 0


# A stand-in for the Python implementation: its input is INPUT0, and MASK is an expression of it.
def stub(models, expression: str, *, extra: str = "") -> str:
    """A model that answers MASK. Its x is INPUT0 [N,H,W,D]."""
    name = models.write.child(expression, dims=SAME_SHAPE, input_name="INPUT0", output_name="MASK", max_batch_size=4, extra=extra)
    path = models.write.root / name / "config.pbtxt"
    text = path.read_text()
    path.write_text(text.replace("dims: [ -1, -1, -1 ] } ]\ninstance", "dims: [ 1, -1, -1, -1 ] } ]\ninstance"))
    return models.load(name)


def shadowed(models, shadow: str, every: int = 1, **parameters) -> str:
    return models.pair({"shadow_model": shadow, "shadow_every": str(every), **parameters})


OUTCOMES = ("compared", "shadow_failed", "skipped_busy", "skipped_not_copied", "request_failed")


def outcomes(server, model: str) -> float:
    """How many requests it is known of what became of them."""
    return sum(metric(server, "spleenseg_shadow_requests_total", model, outcome=outcome) for outcome in OUTCOMES)


def settle(server, model: str) -> None:
    """Waits until that is known of all requests, each of which has one volume and was chosen."""
    wait_for(lambda: outcomes(server, model) == metric(server, "spleenseg_volumes_total", model))


def compare(server, model: str, volume: np.ndarray, times: int = 1) -> None:
    """Requests until so many were compared: a network faster than the copy of its input skips some. None is on its way at the end."""
    for number in range(times):
        done = metric(server, "spleenseg_shadow_requests_total", model, outcome="compared")

        def another() -> bool:
            assert_equals_monai(clients.http(server, model, volume, request_id=f"shadow-{number}"), volume)
            return metric(server, "spleenseg_shadow_requests_total", model, outcome="compared") > done

        wait_for(another)
    settle(server, model)


def volumes_of(server, model: str) -> tuple[float, float, float]:
    names = ("volumes", "mismatched_volumes", "mismatched_voxels")
    return tuple(metric(server, f"spleenseg_shadow_{name}_total", model) for name in names)


def test_the_same_pipeline_as_a_shadow_agrees(server, models, volume):
    twin = models.pair(data_type="TYPE_INT64")
    model = shadowed(models, twin)
    compare(server, model, volume, 2)
    count, mismatched, voxels = volumes_of(server, model)
    assert count >= 2 and mismatched == voxels == 0
    assert metric(server, "spleenseg_shadow_dice_count", model) == metric(server, "spleenseg_shadow_dice_sum", model) == count
    assert metric(server, "spleenseg_shadow_dice_bucket", model, le="0.999999") == 0


def test_a_different_mask_is_counted_and_logged(server, models, volume):
    mask, _, _ = expected(volume[0])
    size = ", ".join(map(str, SIZE))
    shadow = stub(models, f"np.ones((len(x), 1, {size}), np.float32)")
    model = shadowed(models, shadow)
    compare(server, model, volume)
    count, mismatched, voxels = volumes_of(server, model)
    assert count == mismatched > 0
    assert voxels == count * (mask.size - mask.sum())
    dice = metric(server, "spleenseg_shadow_dice_sum", model) / count
    assert dice == pytest.approx(2 * mask.sum() / (mask.sum() + mask.size))
    assert any("'shadow-0'" in line and "differs from shadow model" in line and f"in {mask.size - int(mask.sum())} voxels" in line for line in server.text().splitlines())


def test_a_failing_or_missing_shadow_is_the_operators_business_alone(server, models, volume):
    failing = stub(models, "fail('the shadow is broken')")
    for shadow, reason in ((failing, "the shadow is broken"), ("no_such_model", "no_such_model")):
        model = shadowed(models, shadow)

        def failed() -> bool:
            assert_equals_monai(clients.http(server, model, volume, request_id="in-peace"), volume)
            return metric(server, "spleenseg_shadow_requests_total", model, outcome="shadow_failed") > 0

        wait_for(failed)
        lines = [line for line in server.text().splitlines() if f"{model}: " in line and "no comparison" in line]
        assert lines and all("'in-peace'" in line and reason in line for line in lines)
        assert metric(server, "spleenseg_shadow_volumes_total", model) == 0
        assert metric(server, "spleenseg_failures_total", model) == 0


def test_the_client_does_not_wait_for_the_shadow_and_others_are_skipped(server, models, volume, tmp_path):
    size = ", ".join(map(str, SIZE))
    begun, go = tmp_path / "begun", tmp_path / "go"
    slow = stub(models, f"meet({str(begun)!r}, {str(go)!r}, np.ones((len(x), 1, {size}), np.float32))")
    model = shadowed(models, slow)

    def another() -> bool:
        assert_equals_monai(clients.http(server, model, volume), volume)
        return begun.exists()

    try:
        wait_for(another)
        skipped = metric(server, "spleenseg_shadow_requests_total", model, outcome="skipped_busy")
        for _ in range(2):
            another()
        # Both are answered while the shadow still works.
        assert metric(server, "spleenseg_shadow_requests_total", model, outcome="skipped_busy") == skipped + 2
        assert metric(server, "spleenseg_shadow_requests_total", model, outcome="compared") == 0
        # Unloading cancels what is on its way, and the server lives.
        models.unload(model)
        wait_for(lambda: model not in loaded(server))
        assert server.alive()
    finally:
        go.touch()


def test_one_request_in_so_many(server, models, volume):
    model = shadowed(models, "no_such_model", every=4)
    for _ in range(8):
        clients.http(server, model, volume)
    wait_for(lambda: outcomes(server, model) >= 2)
    assert outcomes(server, model) == 2


def test_a_failed_request_is_not_compared(server, models, volume):
    model = shadowed(models, "no_such_model")
    with pytest.raises(Refused):
        clients.http(server, model, np.full_like(volume, -1000.0))
    assert metric(server, "spleenseg_shadow_requests_total", model, outcome="request_failed") == 1


def test_the_input_outlives_the_clients_shared_memory(server, models, volume):
    """The shadow still gets the volume as it was, though the client overwrote its memory as soon as it had its answer."""
    mask, _, _ = expected(volume[0])
    child = models.child(f"after(0.2, {TWO_CLASSES})")
    # Waits, and then says what it was sent: the mean of the volume as a number of voxels.
    total = int(np.prod(SIZE))
    size = ", ".join(map(str, SIZE))
    share = f"(np.arange({total}) < int(-x.mean() * 10)).reshape(1, 1, {size}).astype(np.float32)"
    shadow = stub(models, f"after(1.0, {share})")
    model = models.spleen(child, {"shadow_model": shadow, "shadow_every": "1"})
    shapes = {"MASK": (1, 1, *SIZE)}

    def compared() -> bool:
        """Of one request at a time: where the network was faster than the copy, there is none."""
        clients.shared_memory(server, model, volume, shapes)  # the region is destroyed when it returns
        settle(server, model)
        return volumes_of(server, model)[0] == 1

    wait_for(compared)
    theirs = (np.arange(total) < int(-volume.mean() * 10)).reshape(mask.shape)
    assert 0 < theirs.sum() < total
    assert volumes_of(server, model)[2] == (theirs != mask.astype(bool)).sum()


def test_shadows_cast_no_shadows(server, models, volume):
    """Two models that shadow each other would else send a request to and fro for ever."""
    names = [models.write.name("mutual") for _ in range(2)]
    for name, other in (names, names[::-1]):
        written = models.write.spleen(models.two_classes, {"shadow_model": other, "shadow_every": "1"})
        config = (models.write.root / written / "config.pbtxt").read_text().replace(f'name: "{written}"', f'name: "{name}"')
        models.write.write(name, config)
        models.load(name)
    compare(server, names[0], volume, 3)
    assert metric(server, "spleenseg_volumes_total", names[1]) == volumes_of(server, names[0])[0]
    assert not any(metric(server, "spleenseg_shadow_requests_total", names[1], outcome=o) for o in ("compared", "skipped_busy", "skipped_not_copied"))


def test_a_model_is_not_its_own_shadow(server, models):
    name = models.write.spleen(models.two_classes)
    path = models.write.root / name / "config.pbtxt"
    path.write_text(path.read_text() + f'\nparameters {{ key: "shadow_model" value {{ string_value: "{name}" }} }}\n')
    with pytest.raises(Refused, match="shadow_model.*this model itself"):
        models.load(name)

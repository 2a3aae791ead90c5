"""The soak's requests: volumes that carry a marker, and what is wrong with the bad ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import reference
import torch
from models import Repository, scores

MARKERS = 500
SHAPES = ((32, 32, 24), (40, 28, 20), (24, 36, 30), (17, 45, 23), (48, 40, 12), (20, 20, 20))
BAD_OF = 10  # one request in ten is bad
# No mean of a few whole Hounsfield units comes to lie on it, so that rounding decides no voxel.
THRESHOLD = 0.4871
NETWORK = f"np.concatenate([{THRESHOLD} - x, x - {THRESHOLD}], axis=1)"

# What the Python network does is said by the request's id, so that bad requests go through the instances that good ones go through.
OBEDIENT = f"""{{
    "failing": lambda: fail("no such organ"),
    "nan": lambda: np.full((len(x), 2, *x.shape[2:]), np.nan, np.float32),
    "slow": lambda: after(0.3, {NETWORK}),
}}.get(request.request_id().partition(" ")[0], lambda: {NETWORK})()"""


class TwoClasses(torch.nn.Module):
    """NETWORK as TorchScript."""

    def __init__(self):
        super().__init__()
        self.threshold = THRESHOLD

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.threshold - x, x - self.threshold], 1)


@dataclass(frozen=True)
class Served:
    """A model under load."""

    name: str
    size: tuple[int, int, int]
    dtype: type = np.float32
    output_dtype: type = np.float32
    outputs: tuple[str, ...] = ("MASK", "CONTOUR")

    def output_shape(self, name: str, volume: np.ndarray) -> tuple[int, ...]:
        return (1, 1, *(volume.shape[1:] if name.endswith("_NATIVE") else self.size))


def torchscript(repository: Repository, scratch: Path, instances: int = 1) -> str:
    """NETWORK in the server's own process."""
    file = scratch / "network.pt"
    torch.jit.script(TwoClasses()).save(str(file))
    tensors = "".join(
        f'{way} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ {classes}, -1, -1, -1 ] }} ]\n'
        for way, name, classes in (("input", "INPUT__0", 1), ("output", "OUTPUT__0", 2))
    )
    return repository.torchscript(file, f"max_batch_size: 4\n{tensors}instance_group [ {{ kind: KIND_CPU count: {instances} }} ]\n")


def write_models(repository: Repository, scratch: Path) -> tuple[list[str], list[Served]]:
    """The networks, and the models that call them: several instances, several requests in flight, batches, native outputs."""
    inside = torchscript(repository, scratch, instances=2)
    outside = repository.child(OBEDIENT, instances=2)
    batches = "dynamic_batching { max_queue_delay_microseconds: 2000 }\n"
    served = [
        Served(repository.spleen(inside, {"max_in_flight": "2", "threads": "2"}), (24, 20, 16)),
        Served(
            repository.spleen(
                inside, {"max_in_flight": "4"}, size=(16, 24, 20), input_type="TYPE_INT16", data_type="TYPE_UINT8", max_batch_size=4, extra=batches
            ),
            (16, 24, 20),
            np.int16,
            np.uint8,
        ),
        Served(
            repository.spleen(outside, {"max_in_flight": "3"}, size=(20, 16, 24), data_type="TYPE_UINT8", shipped="spleen_seg_native"),
            (20, 16, 24),
            output_dtype=np.uint8,
            outputs=("MASK", "CONTOUR", "MASK_NATIVE", "CONTOUR_NATIVE"),
        ),
    ]
    for model, instances in zip(served, (3, 1, 2)):
        path = repository.root / model.name / "config.pbtxt"
        path.write_text(path.read_text().replace("count: 1", f"count: {instances}"))
    return [inside, outside], served


def marked(number: int) -> np.ndarray:
    """A volume [H,W,D] in Hounsfield units: in air a body with blobs, whose places, sizes and number are this number's alone."""
    random = np.random.default_rng(number)
    shape = np.array(SHAPES[number % len(SHAPES)])
    volume = np.full(shape, -900.0)
    low, high = random.integers(0, 4, 3), shape - random.integers(0, 4, 3)
    volume[tuple(map(slice, low, high))] = -20.0
    axes = np.ogrid[tuple(map(slice, shape))]
    for _ in range(1 + number % 4):
        centre, radius = random.uniform(low + 3, high - 3), random.uniform(0.15, 0.4) * (high - low)
        volume[sum(((axis - c) / r) ** 2 for axis, c, r in zip(axes, centre, radius)) < 1] = 120.0
    return np.round(volume + random.normal(0.0, 15.0, shape))


@dataclass(frozen=True)
class Request:
    """A request as every protocol can send it."""

    id: str
    model: Served
    marker: int
    tensors: dict[str, np.ndarray]
    outputs: tuple[str, ...]
    bad: str = ""
    # What the answer must be: the serial one's, or an error of one of these codes that has all these words.
    codes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    # In shared memory: bytes that the client declares more or less than there are.
    input_bytes: int = 0
    output_bytes: int = 0
    cancelled: bool = False

    @property
    def volume(self) -> np.ndarray:
        return next(iter(self.tensors.values()))


INVALID, INTERNAL = ("400", "StatusCode.INVALID_ARGUMENT"), ("500", "StatusCode.INTERNAL")


def refused(request: Request, *words: str, codes=INVALID, **changes) -> Request:
    return replace(request, codes=codes, words=words, **changes)


def tensors(array: np.ndarray, name: str = "INPUT0") -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array)}


# What can be wrong with a request in any protocol. Each says what the error must name.
WRONG = {
    "three axes": lambda r: refused(r, "batch-size", r.model.name, tensors=tensors(r.volume[0])),
    "five axes": lambda r: refused(r, "INPUT0", tensors=tensors(r.volume[None])),
    "an empty axis": lambda r: refused(r, "INPUT0", tensors=tensors(r.volume[:, :, :0])),
    "batch over the limit": lambda r: refused(r, "batch-size", r.model.name, tensors=tensors(np.repeat(r.volume, 5, axis=0))),
    "FP64": lambda r: refused(r, "INPUT0", "FP64", tensors=tensors(r.volume.astype(np.float64))),
    "another input": lambda r: refused(r, "IMAGE", tensors=tensors(r.volume, "IMAGE")),
    "no input": lambda r: refused(r, "input", r.model.name, tensors={}),
    "unknown output": lambda r: refused(r, "SPLEEN", outputs=("MASK", "SPLEEN")),
    "no foreground": lambda r: refused(r, "foreground", "volume 0", tensors=tensors(np.full_like(r.volume, -900))),
    "failing network": lambda r: refused(r, "no such organ", codes=INTERNAL),
    # Not an error: NaN scores are a background of their own, by MONAI's argmax.
    "NaN network": lambda r: r,
}
IN_SHARED_MEMORY = {
    "input too short": lambda r: refused(r, "INPUT0", str(r.volume.nbytes), input_bytes=-4),
    "input too long": lambda r: refused(r, "INPUT0", str(r.volume.nbytes), input_bytes=4),
    "output too small": lambda r: refused(r, "MASK", codes=INVALID + INTERNAL, output_bytes=-1),
}
CANCELLED = {"cancelled": lambda r: replace(r, cancelled=True)}
NEEDS_THE_OBEDIENT = {"failing network": "failing", "NaN network": "nan", "cancelled": "slow"}


@dataclass
class Cases:
    """The requests by number; good ones repeat after MARKERS."""

    served: list[Served]
    volumes: list[np.ndarray] = field(init=False)

    def __post_init__(self):
        self.volumes = [marked(n)[None].astype(self.model(n).dtype) for n in range(MARKERS)]

    def model(self, marker: int) -> Served:
        return self.served[marker % len(self.served)]

    def good(self, number: int) -> Request:
        marker = number % MARKERS
        model = self.model(marker)
        outputs = model.outputs[: 1 + number % len(model.outputs)]
        return Request(f"good {number}", model, marker, tensors(self.volumes[marker]), outputs)

    def bad(self, number: int, kind: str, make) -> Request:
        marker = number % MARKERS
        if kind in NEEDS_THE_OBEDIENT:
            marker -= (marker - len(self.served) + 1) % len(self.served)
        request = self.good(marker)
        return make(replace(request, id=f"{NEEDS_THE_OBEDIENT.get(kind, 'bad')} {number}", bad=kind))

    def monai(self, marker: int) -> dict[str, np.ndarray]:
        """MONAI's own answer."""
        model, volume = self.model(marker), self.volumes[marker][0].astype(np.float32)
        mask, contour = reference.finish(scores(NETWORK, reference.prepare(volume, model.size).resized)[0])
        found = {"MASK": mask, "CONTOUR": contour}
        if "MASK_NATIVE" in model.outputs:
            found["MASK_NATIVE"], found["CONTOUR_NATIVE"] = reference.native(volume, mask, model.size)
        return {name: array[None].astype(model.output_dtype) for name, array in found.items()}


def is_error_of(request: Request, code: str, text: str) -> bool:
    return code in request.codes and all(word in text for word in request.words)

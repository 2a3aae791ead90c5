"""One scan through the server: turned to the model's axes, cut to what the server needs, and its masks laid back over the scan."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

import numpy as np

from . import ClientError, axes, grid
from .foreground import box
from .scan import Scan, doubt
from .server import Server
from .transport import choose

INT16 = np.iinfo(np.int16)


@dataclass
class Segmentation:
    """Labels (uint8) in RAS, in the scan's own grid."""

    mask: np.ndarray
    contour: np.ndarray | None
    voxels: int  # of the mask
    millilitres: float
    native: bool  # the server laid the mask back, not this client
    sent_box: tuple[tuple[int, int], ...]  # first and last-plus-one voxel along each axis of the model's order
    sent_bytes: int
    transport: str
    parameters: dict = field(default_factory=dict)  # of the response
    seconds: dict[str, float] = field(default_factory=dict)  # read, prepare, request, lay back
    warning: str = ""  # values that are hardly Hounsfield units


class Segmenter:
    """Segments scans with one server. Threads may share it."""

    def __init__(self, server: Server, transport: str = "auto", model_axes: str = "RAS", whole: bool = False):
        self.server = server
        self.model_axes = axes.parse(model_axes)
        self.interface = server.interface  # a server that is not there is said here
        self.carrier = choose(server, transport)
        self.whole = whole  # send all voxels, needed or not

    def segment(self, scan: Scan, contour: bool = True) -> Segmentation:
        seconds = {}
        begin = time.perf_counter()
        ras = scan.voxels_ras()
        warning = doubt(ras)
        seconds["read"], begin = time.perf_counter() - begin, time.perf_counter()

        interface = self.interface
        volume = as_sent(axes.from_ras(ras, self.model_axes), interface.input_type)
        part = box(volume, None if self.whole else interface.rule)
        if part is None:
            raise ClientError(f"{scan.path} has no foreground: no voxel is above a_min, {interface.rule.threshold:g} HU")
        part_shape = tuple(s.stop - s.start for s in part)
        # Without native outputs the contour of the network's grid is of no use: it is the scan's grid that needs one.
        ask_contour = contour and "CONTOUR_NATIVE" in interface.outputs
        names = ["MASK_NATIVE" if interface.native else "MASK"] + ["CONTOUR_NATIVE"] * ask_contour
        outputs = {name: (interface.output_shape(name, part_shape), interface.outputs[name][1]) for name in names}

        with self.carrier(self.server) as carrier:
            given = carrier.prepare([1, *part_shape], interface.input_type, outputs)
            np.copyto(given[0], volume[part], casting="unsafe")
            seconds["prepare"], begin = time.perf_counter() - begin, time.perf_counter()
            tensor, wanted = carrier.tensors(outputs)
            options = {"client_timeout": self.server.timeout_s} if self.server.grpc else {}
            spacing = axes.spacing_from_ras(scan.spacing_ras, self.model_axes)
            result = self.server.ask(
                "infer",
                interface.model,
                [tensor],
                outputs=wanted,
                request_id=f"{scan.name[:40]}-{uuid.uuid4().hex[:8]}",
                parameters={"spacing": ",".join(f"{s:.9g}" for s in spacing)},
                **options,
            )
            arrays = carrier.read(result, outputs)
            seconds["request"], begin = time.perf_counter() - begin, time.perf_counter()
            sent_bytes = given.nbytes
        parameters = response_parameters(result, self.server.grpc)
        parameters["model_version"] = served_version(result, self.server.grpc)
        found = [self._laid_back(arrays[name], parameters, part, volume.shape, interface.native) for name in names]
        if contour and not ask_contour:
            found.append(grid.contour(found[0]))
        seconds["lay back"] = time.perf_counter() - begin
        voxels = int(np.count_nonzero(found[0]))
        return Segmentation(
            found[0],
            found[1] if contour else None,
            voxels,
            scan.millilitres(voxels),
            interface.native,
            tuple((s.start, s.stop) for s in part),
            sent_bytes,
            carrier.name,
            parameters,
            seconds,
            warning,
        )

    def _laid_back(self, labels: np.ndarray, parameters: dict, part, shape, native: bool) -> np.ndarray:
        """From the answer's grid to the scan's, in RAS."""
        labels = labels.reshape(labels.shape[-3:])
        sent = tuple(s.stop - s.start for s in part)
        if native:
            if labels.shape != sent:
                raise ClientError(f"the native mask has {labels.shape} voxels, sent were {sent}")
        else:
            crop = grid.Crop.of_response(parameters)
            if crop.input_shape != sent:
                raise ClientError(f"response parameter input_shape: found {crop.input_shape}, sent was {sent}")
            labels = grid.to_volume(labels.astype(np.uint8), crop)
        whole = np.zeros(shape, np.uint8)
        whole[part] = labels
        return axes.to_ras(whole, self.model_axes)


def as_sent(volume: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The values that the server will see. For INT16 they are rounded, and what the type cannot hold goes to its nearest value;
    NaN, which is never foreground, to the lowest."""
    if dtype != np.int16 or (volume.dtype.kind in "iu" and np.can_cast(volume.dtype, np.int16)):
        return volume
    rounded = volume if volume.dtype.kind in "iu" else np.rint(np.nan_to_num(volume, nan=INT16.min, posinf=INT16.max, neginf=INT16.min))
    return np.clip(rounded, INT16.min, INT16.max).astype(np.int16)


def response_parameters(result, grpc: bool) -> dict:
    response = result.get_response()
    if grpc:
        return {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in response.parameters.items()}
    return dict(response.get("parameters", {}))


def served_version(result, grpc: bool) -> str:
    response = result.get_response()
    return response.model_version if grpc else str(response.get("model_version", ""))

"""Masks of a DICOM series as DICOM segmentation objects, which name the images that they belong to."""

from __future__ import annotations

import warnings
from pathlib import Path

import highdicom
import numpy as np
from highdicom.seg import Segmentation, SegmentAlgorithmTypeValues, SegmentDescription, SegmentationTypeValues
from nibabel.orientations import apply_orientation, ornt_transform
from pydicom.sr.codedict import codes

from . import VERSION, ClientError, one_line
from .axes import RAS
from .dicom import DicomSeries

MANUFACTURER, PRODUCT = "triton-spleenseg", "spleen_seg"
SERIES_NUMBER = 900  # far from a scanner's own


def save(scan: DicomSeries, labels_ras: np.ndarray, path: Path, what: str, origin: dict[str, str]) -> None:
    """Writes one label map as one binary segment. ``what`` names it: Spleen, or Spleen contour."""
    labels = apply_orientation(labels_ras, ornt_transform(RAS, scan.orientation))
    algorithm = highdicom.AlgorithmIdentificationSequence(
        name=origin["model"][:64],
        family=codes.DCM.ArtificialIntelligence,
        version=f"{origin['model_version']}, {origin['network']} {origin.get('network_version', '')}"[:64],
        source=MANUFACTURER,
        parameters={key: value for key, value in sorted(origin.items()) if value and key not in ("model", "network")},
    )
    segment = SegmentDescription(
        segment_number=1,
        segment_label=what,
        segmented_property_category=codes.SCT.Organ,
        segmented_property_type=codes.SCT.Spleen,
        algorithm_type=SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=algorithm,
        tracking_uid=highdicom.UID(),
        tracking_id=what,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty mask, and odd values of the source's own attributes
            written = Segmentation(
                source_images=scan.slices,
                pixel_array=np.ascontiguousarray((labels > 0).transpose(2, 1, 0)),
                segmentation_type=SegmentationTypeValues.BINARY,
                segment_descriptions=[segment],
                series_instance_uid=highdicom.UID(),
                series_number=SERIES_NUMBER,
                sop_instance_uid=highdicom.UID(),
                instance_number=1,
                manufacturer=MANUFACTURER,
                manufacturer_model_name=PRODUCT,
                software_versions=[v[:64] for v in (f"client {VERSION}", origin["server"], _build(origin)) if v],
                device_serial_number=(origin.get("build_id") or VERSION)[:64],
                series_description=f"{what}, {origin['model']} v{origin['model_version']}"[:64],
                content_description=origin["notice"][:64] or None,
                content_label="SPLEEN",
            )
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise ClientError(f"{scan.path}: a DICOM SEG cannot be made from this series: {one_line(error)}") from None
    written.save_as(path)


def _build(origin: dict[str, str]) -> str:
    return f"backend {origin['build_id']}" if origin.get("build_id") else ""

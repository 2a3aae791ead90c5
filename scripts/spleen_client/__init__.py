"""The client: scans in (NIfTI, DICOM), masks in the scan's own geometry out, through a running server.

scripts/segment.py is its command line, scripts/demo.sh another user. As a module:

    from spleen_client.server import Server
    from spleen_client.segmenter import Segmenter
    from spleen_client.nifti import NiftiScan

    with Server("localhost:8000") as server:
        result = Segmenter(server).segment(NiftiScan("ct.nii.gz"))

Arrays named ``ras`` hold the scan's voxels with axes swapped and flipped to RAS (x to the patient's right, y to the front, z to
the head), never resampled. Needs no torch.
"""

VERSION = "0.1.0"  # that of the workspace in Cargo.toml


class ClientError(Exception):
    """Why a scan cannot be segmented, as one line: what was found, and what is accepted."""


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def times(shape) -> str:
    return " x ".join(str(n) for n in shape)


def millimetres(spacing) -> str:
    return " x ".join(f"{s:.2f}" for s in spacing) + " mm"

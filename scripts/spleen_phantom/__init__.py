"""Synthetic abdominal CT volumes with a known spleen: for demonstrations, tests and load generation.

Nothing here comes from a patient and nothing here is meant for clinical use.

Conventions used by every function of this package:

* lengths are millimetres, intensities are Hounsfield units (HU);
* volumes are indexed ``[x, y, z]`` in C order; x grows to the patient's right, y to the front (anterior),
  z to the head (superior): RAS. The spleen therefore lies at low x, the liver at high x;
* internally, fields on the coarse working grid are indexed ``[z, x, y]`` so that one slice is contiguous.
"""

from .files import save_nifti, save_perf_analyzer_json
from .phantom import Phantom, best_threshold_dice, make_phantom
from .ranges import RANGES, sample_parameters

__all__ = [
    "RANGES",
    "Phantom",
    "best_threshold_dice",
    "make_phantom",
    "sample_parameters",
    "save_nifti",
    "save_perf_analyzer_json",
]

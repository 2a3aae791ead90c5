"""What several test files assert in the same way."""

from __future__ import annotations

from collections import Counter

import numpy as np
import reference
from clients import Answer
from models import SIZE, TWO_CLASSES, scores


# How often tests of faults did what, for the figures at the end of a run.
TRIED = Counter()


def expected(volume: np.ndarray, expression: str = TWO_CLASSES, size=SIZE, post: dict | None = None, **pre):
    """MONAI's mask, contour and box for one volume [H,W,D] and a child with this expression."""
    prepared = reference.prepare(volume, size, **pre)
    mask, contour = reference.finish(scores(expression, prepared.resized)[0], **(post or {}))
    return mask, contour, prepared


def assert_equals_monai(answer: Answer, volumes: np.ndarray, expression: str = TWO_CLASSES, size=SIZE, post: dict | None = None, **pre):
    """MASK, CONTOUR and the response parameters of a batch [N,H,W,D], volume by volume."""
    starts, ends, shapes = answer.boxes()
    assert len(starts) == len(ends) == len(shapes) == len(volumes)
    for number, volume in enumerate(volumes):
        mask, contour, prepared = expected(volume, expression, size, post, **pre)
        for name, wanted in (("MASK", mask), ("CONTOUR", contour)):
            if name in answer.arrays:
                found = answer.arrays[name]
                assert found.shape == (len(volumes), 1, *size)
                np.testing.assert_array_equal(found[number], wanted, err_msg=f"{name} of volume {number}")
        assert starts[number] == prepared.start
        assert ends[number] == prepared.end
        assert shapes[number] == list(volume.shape)
        # A reference that is all background or all spleen would compare nothing.
        assert 0 < mask.sum() < mask.size


class Expected:
    """MONAI's result for one volume [1,H,W,D], computed once and compared with many answers."""

    def __init__(self, volume: np.ndarray, **options):
        mask, contour, prepared = expected(volume[0], **options)
        assert 0 < mask.sum() < mask.size, "all background or all spleen would compare nothing"
        self.arrays = {"MASK": mask[None], "CONTOUR": contour[None]}
        self.boxes = ([prepared.start], [prepared.end], [list(volume.shape[1:])])

    def assert_is(self, answer: Answer) -> None:
        assert answer.boxes() == self.boxes
        for name, found in answer.arrays.items():
            np.testing.assert_array_equal(found, self.arrays[name], err_msg=name)

"""Many scans: several in flight, what is done already left alone, and no scan that fails stops another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from . import ClientError, one_line
from .results import Options, Results
from .segmenter import Segmenter
from .sources import Source

DONE, KEPT, FAILED = "segmented", "already done", "failed"


@dataclass
class Outcome:
    """What became of one scan."""

    source: Source
    status: str
    record: dict | None = None
    error: str = ""
    warning: str = ""
    seconds: float = 0.0


def run(
    sources: list[Source],
    segmenter: Segmenter,
    options: Options,
    in_flight: int = 2,
    again: bool = False,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """All of them, in the order given. ``tell`` hears of each as it ends, on the caller's thread."""
    stop = threading.Event()

    def work(source: Source) -> Outcome:
        if stop.is_set():
            raise CancelledError
        return _one(source, segmenter, options, again)

    with ThreadPoolExecutor(max_workers=in_flight) as pool:
        waiting = {pool.submit(work, source): number for number, source in enumerate(sources)}
        outcomes: list[Outcome | None] = [None] * len(sources)
        try:
            for ended in as_completed(waiting):
                outcome = outcomes[waiting[ended]] = ended.result()
                tell(outcome)
        except BaseException:
            # Those in flight end, so that nothing is left half written; the others never begin.
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return outcomes


def _one(source: Source, segmenter: Segmenter, options: Options, again: bool) -> Outcome:
    begin = time.perf_counter()
    try:
        identity = segmenter.server.identity
        scan = source.open()
        input_sha256 = scan.fingerprint()
        results = Results(source.name, options)
        if not again and (record := results.done(input_sha256, identity, source.dicom)):
            return Outcome(source, KEPT, record, seconds=time.perf_counter() - begin)
        found = segmenter.segment(scan, contour=options.contour)
        record = results.write(scan, found, identity, input_sha256)
        return Outcome(source, DONE, record, warning=found.warning, seconds=time.perf_counter() - begin)
    except (ClientError, OSError) as error:
        text = one_line(error)
    except MemoryError:
        text = f"{source.path}: this machine has too little memory for it; fewer --in-flight need less"
    except Exception as error:  # a fault of ours or of a library on one scan must not cost the others
        text = f"{source.path}: {type(error).__name__}: {one_line(error)}"
    return Outcome(source, FAILED, error=text, seconds=time.perf_counter() - begin)

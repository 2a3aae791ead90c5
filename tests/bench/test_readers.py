"""What the benchmark reads: perf_analyzer's report, Triton's statistics, /proc, and the notes of the steps."""

import itertools
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from bench import completions, memory, perf, sections, statistics

# As perf_analyzer 2.50.0 wrote it with --verbose-csv -f, for two requests over HTTP.
REPORT = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,\
Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait
1,0.0453978,442152,185941,204,73002,20302166,218299,243684,22555049,22555049,22555049,22555049,21465450,685836,20604862

"""


def test_a_report_is_read_in_milliseconds():
    report = perf.parse_report(REPORT)
    assert report["latency_ms"] == pytest.approx(21465.450)
    assert report["transfer_ms"] == pytest.approx(685.836)
    assert report["wait_ms"] == pytest.approx(20604.862)
    assert report["compute_input_ms"] == pytest.approx(73.002)
    assert report["compute_infer_ms"] == pytest.approx(20302.166)
    assert report["compute_output_ms"] == pytest.approx(218.299)
    assert report["queue_ms"] == pytest.approx(0.204)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REPORT.replace("response wait", "something else"), "lacks .'response wait'"),
        (REPORT.splitlines()[0], "has 0 rows"),
        (REPORT + REPORT.splitlines()[1], "has 2 rows"),
        ("", "has 0 rows"),
    ],
)
def test_another_format_is_refused(text, said):
    with pytest.raises(perf.PerfError, match=said):
        perf.parse_report(text)


def test_throughput_is_counted_between_the_first_completion_and_the_last():
    assert completions.throughput([(10.0, 101), (12.0, 102), (14.0, 105)]) == pytest.approx(1.0)
    assert completions.throughput([(10.0, 101)]) is None


def test_a_reading_is_taken_once_after_the_first_request():
    counts, readings = iter([7, 7, 8, 9]), iter([{"spleen_seg": 8}])
    with completions.AfterFirst(lambda: next(counts), lambda: next(readings), interval_s=0.001) as first:
        first._thread.join(timeout=60)
    assert first.reading == {"spleen_seg": 8}
    with completions.AfterFirst(lambda: 7, dict, interval_s=0.001) as none:
        time.sleep(0.01)
    assert none.reading is None


def test_completions_are_seen_when_they_happen(monkeypatch):
    """On a clock that goes on by 10 ms with each look at the count: however long a look takes here."""
    clock, over = itertools.count(1), threading.Event()
    now = 0.0

    def count() -> int:
        nonlocal now
        now = next(clock) / 100
        if now > 1.5:
            over.set()
        return int(now / 0.2)  # one request ends every 0.2 s

    monkeypatch.setattr(completions, "time", SimpleNamespace(monotonic=lambda: now))
    with completions.Completions(count, interval_s=0.0005) as watched:
        assert over.wait(60)
    assert watched.throughput() == pytest.approx(5.0, rel=0.02)


def test_the_number_of_requests():
    assert perf.request_count("  Client: \n    Request count: 12\n    Throughput: 1 infer/sec\n") == 12
    assert perf.request_count("Failed to maintain requested inference load") == 0


@pytest.mark.parametrize(
    ("transport", "port", "option"), [("shm", "8000", "--shared-memory"), ("http", "8000", None), ("grpc", "8001", "-i")]
)
def test_the_command_line(transport, port, option, tmp_path):
    load = perf.Load("spleen_seg", "INPUT0", (512, 512, 114), "zero", transport, requests=3, concurrency=2)
    arguments = load.arguments(8000, 8001, tmp_path / "report.csv")
    assert arguments[arguments.index("-u") + 1] == f"127.0.0.1:{port}"
    assert arguments[arguments.index("--shape") + 1] == "INPUT0:512,512,114"
    assert arguments[arguments.index("--request-count") + 1] == "3"
    assert arguments[arguments.index("--concurrency-range") + 1] == "2"
    for other in ("--shared-memory", "-i"):
        assert (other in arguments) == (other == option)


def entry(success: int, success_ns: int, fail: int = 0, **phases: int) -> dict:
    stats = {"success": {"count": success, "ns": success_ns}, "fail": {"count": fail, "ns": 0}}
    # The HTTP protocol leaves out what is zero, or the whole entry.
    stats.update({phase: {"count": success, "ns": ns} for phase, ns in phases.items()})
    return {"inference_stats": stats}


def test_statistics_are_averaged_over_the_requests_between_two_readings():
    before = entry(3, 9_000_000, queue=3_000_000)
    after = entry(5, 29_000_000, queue=3_000_000, compute_input=4_000_000, compute_infer=10_000_000, compute_output=6_000_000)
    stats = statistics.difference(before, after)
    assert stats == {
        "count": 2, "server_ms": 10.0, "queue_ms": 0.0, "compute_input_ms": 2.0, "compute_infer_ms": 5.0, "compute_output_ms": 3.0,
    }  # fmt: skip
    assert statistics.compute_ms(stats) == 10.0
    assert statistics.before_and_after_ms(stats, {"server_ms": 4.0}) == 6.0


def test_a_model_that_was_not_called_has_a_count_only():
    assert statistics.difference(entry(3, 9), entry(3, 9)) == {"count": 0}


def test_failed_requests_are_no_measurement():
    with pytest.raises(statistics.StatisticsError, match="1 requests failed"):
        statistics.difference(entry(3, 9), entry(4, 10, fail=1))


STATUS = "Name:\ttritonserver\nVmRSS:\t  900 kB\nRssAnon:\t     512 kB\nRssFile:\t  300 kB\nRssShmem:\t 88 kB\n"


def fake_process(proc, pid: int, parent: int, command: str = "tritonserver") -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} ({command}) S {parent} {parent} 0 0 -1\n")
    (proc / str(pid) / "status").write_text(STATUS)


def test_memory_counts_a_process_and_its_descendants(tmp_path):
    (tmp_path / "self").mkdir()
    fake_process(tmp_path, 1, 0)
    fake_process(tmp_path, 10, 1)
    fake_process(tmp_path, 12, 10, "a (b) c")
    fake_process(tmp_path, 13, 12)
    fake_process(tmp_path, 20, 1)
    assert sorted(memory.process_tree(10, tmp_path)) == [10, 12, 13]
    # 99 has ended since the tree was read.
    assert memory.anonymous_bytes([10, 12, 13, 99], tmp_path) == 3 * 512 * 1024
    assert memory.status_bytes(STATUS, "RssShmem") == 88 * 1024
    assert memory.status_bytes("Name:\tzombie\n", "RssAnon") == 0


def test_the_sampler_sees_what_a_child_held_for_a_moment(tmp_path):
    # The child goes on with each line that it gets.
    child = "x = bytearray(b'1') * 150_000_000\ninput()\ndel x\nprint('gone', flush=True)\ninput()"
    parent = f"import subprocess, sys\ninput()\nsubprocess.run([sys.executable, '-c', {child!r}])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, "-c", parent], **pipes) as process, memory.Sampler(process.pid, "no_such_region_") as watched:
        idle = watched.sample() / memory.MB
        process.stdin.write("\n")
        deadline = time.monotonic() + 120
        while watched.peak_mb < 150 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.stdin.write("\n")
        assert process.stdout.readline() == "gone\n"
        assert watched.sample() / memory.MB < 100
        process.stdin.write("\n")
    assert idle < 100
    assert 150 < watched.peak_mb < 300
    assert watched.shared_peak_mb == 0


def test_shared_memory_is_counted_by_the_name_of_its_region(tmp_path):
    (tmp_path / "mine_1").write_bytes(b"1" * 8192)
    (tmp_path / "other").write_bytes(b"1" * 8192)
    with (tmp_path / "mine_2").open("wb") as sparse:
        sparse.truncate(1 << 30)  # reserved, but not in use
    assert 8192 <= memory.shared_bytes("mine_", tmp_path) < 100_000


def test_steps_of_the_python_model(tmp_path):
    notes = tmp_path / "steps.jsonl"
    notes.write_text('{"scale": 9.0}\n')
    already = notes.stat().st_size
    with notes.open("a") as out:
        out.write('{"scale": 0.5, "crop": 0.25}\n{"scale": 1.5, "crop": 0.75}\n')
    requests = sections.read_steps(notes, already)
    assert requests == [{"scale": 500.0, "crop": 250.0}, {"scale": 1500.0, "crop": 750.0}]
    assert sections.mean_of_steps(requests) == {"scale": 1000.0, "crop": 500.0}


def test_steps_of_this_backend_are_found_between_other_lines_of_the_log(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(
        "I1201 infer_handler.h:1 the next steps are none\n"
        "I1201 backend.rs:2 spleen_seg: request '': steps foreground=3.1 resize=9 network=3105.25 ms\n"
    )
    assert sections.read_steps(log, 0) == [{"foreground": 3.1, "resize": 9.0, "network": 3105.25}]
    assert sections.mean_of_steps([]) == {}

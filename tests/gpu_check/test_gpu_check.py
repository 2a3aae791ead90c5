"""scripts/gpu_bundle.sh and scripts/gpu_check.sh, as far as a machine without a GPU can run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from gpu_check import benchmark, needs, parity, placement, sanitizer, server, steps, torchscript  # noqa: E402
from gpu_check.check import Check  # noqa: E402
from gpu_check.latency import Run  # noqa: E402
from gpu_check.report import FAILED, NOTHING_CHECKED, PASSED, OutOfTime, Report, Skip  # noqa: E402
from gpu_check.repositories import spleen, text  # noqa: E402
from gpu_check.server import Server  # noqa: E402

# The first test waits for the build of the library.
BUILD_S = 1500
pytestmark = pytest.mark.timeout(BUILD_S + 60)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    """As the file unpacks, with fewer cases and without what has to be compiled for libtorch."""
    folder = tmp_path_factory.mktemp("unpacked") / "gpu_bundle"
    command = [ROOT / "scripts" / "gpu_bundle.sh", "--without-pytorch", "--folder", folder, "--cases", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert Path(done.stdout.strip()) == folder
    return folder


@pytest.fixture(scope="session")
def bare(tmp_path_factory) -> str:
    """A Python that has no module beside its own."""
    folder = tmp_path_factory.mktemp("python") / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="session")
def emulated(tmp_path_factory) -> Path:
    """A folder to load libraries from, whose libcuda is the emulated driver."""
    subprocess.run(["cargo", "build", "--locked", "--package", "fake_driver"], cwd=ROOT, check=True, timeout=BUILD_S)
    library = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "libfake_driver.so"
    folder = tmp_path_factory.mktemp("emulated")
    (folder / "libcuda.so.1").symlink_to(library)
    return folder


def check(bundle: Path, out: Path, *options: str, python: str = sys.executable, **environment: str) -> subprocess.CompletedProcess:
    """From another folder, as a user would."""
    return subprocess.run(
        [bundle / "gpu_check.sh", *options, out],
        cwd=out.parent,
        env={**os.environ, "GPU_CHECK_PYTHON": python, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def outcomes(done: subprocess.CompletedProcess) -> dict[str, str]:
    """What the end of the report says of each part."""
    lines = done.stdout.partition("== result ==\n")[2].splitlines()
    return dict(line.split(": ", 1) for line in lines if re.match(r".*: (passed|failed|skipped)", line))


def test_the_cpu_corner_passes(bundle, tmp_path):
    done = check(bundle, tmp_path / "out", "--cpu", "--parts", "parity,placement,torchscript")
    assert done.returncode == PASSED, done.stdout + done.stderr
    *checked, torchscript = outcomes(done).values()
    assert checked == ["passed", "passed"]
    assert torchscript.startswith("skipped: torchscript_backend ")
    checked_networks(done, "built in", "in the Python backend")
    assert (tmp_path / "out" / "report.txt").read_text() == done.stdout
    assert "tritonserver" in (tmp_path / "out" / "parity_cpu_threshold.log").read_text().lower()
    assert not list(Path("/dev/shm").glob("gpu_check_*"))


def checked_networks(done: subprocess.CompletedProcess, *networks: str) -> None:
    """Parity and placement told of these networks, in which nothing was wrong, and of no other."""
    said = r"^network (.*): (\d+) cases: boxes, ([\d,]+) resized .* of (\d+); 0 differences"
    found = re.findall(said, done.stdout, re.MULTILINE)
    assert [network for network, *_ in found] == list(networks)
    for _, cases, voxels, masks in found:
        assert int(cases) >= 10 and int(masks) > 5 and int(voxels.replace(",", "")) > 1000
    for network in networks:
        assert f"network {network}: 4 combinations, 4 answered" in done.stdout
    assert f"{4 * len(networks)} answers, 0 wrong" in done.stdout


def test_a_python_with_numpy_alone_checks_with_the_network_that_is_built_in(bundle, bare, tmp_path):
    """This Python's NumPy, in a Python that has nothing else."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for name in ("numpy", "numpy.libs"):
        (modules / name).symlink_to(Path(np.__file__).parents[1] / name)
    done = check(bundle, tmp_path / "out", "--cpu", "--parts", "parity,placement,benchmark,torchscript", python=bare, PYTHONPATH=str(modules))
    parity, placement, benchmark, torchscript = outcomes(done).values()
    assert done.returncode == PASSED, done.stdout + done.stderr
    assert (parity, placement) == ("passed", "passed")
    checked_networks(done, "built in")
    assert "network: built in alone. Missing for one in the Python backend: the Python module torch" in done.stdout
    assert torchscript == "skipped: the Python module torch"
    assert benchmark.startswith("skipped: the Python module torch") and benchmark.endswith("This backend was measured alone")
    assert "this backend over HTTP: " in done.stdout


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU")
def test_without_a_gpu_or_a_module_the_parts_are_skipped_and_say_what_is_missing(bundle, bare, tmp_path):
    done = check(bundle, tmp_path / "out", python=bare)
    found = outcomes(done)
    assert len(found) == 8
    for title, outcome in found.items():
        modules, gpu = "the Python module numpy" in outcome, "an NVIDIA GPU (libcuda.so.1" in outcome
        assert outcome.startswith("skipped: ")
        assert modules == (not title.startswith("kernel")) and gpu == (title != "parity with MONAI on the CPU"), title
    assert done.returncode == NOTHING_CHECKED
    assert "NOTHING COULD BE CHECKED" in done.stdout and "Traceback" not in done.stdout + done.stderr


def test_the_kernels_are_checked_and_measured_with_a_driver_alone(bundle, bare, emulated, tmp_path):
    """Without any Python module, Triton or PyTorch. The driver is the emulated one; compute-sanitizer stands for NVIDIA's."""
    tools = tmp_path / "tools"
    tools.mkdir()
    script = f'#!/bin/sh\necho "$@" >>{tmp_path}/ran\ncase $2 in racecheck) exit 1;; esac\necho "========= ERROR SUMMARY: 0 errors"\n'
    (tools / "compute-sanitizer").write_text(script)
    (tools / "compute-sanitizer").chmod(0o755)
    where = {"LD_LIBRARY_PATH": str(emulated), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = check(bundle, tmp_path / "out", "--cpu", "--parts", "steps,kernels,sanitizer", python=bare, **where)
    assert done.returncode == PASSED, done.stdout + done.stderr
    assert list(outcomes(done).values()) == ["passed"] * 3
    for image in ("machine code for sm_86", "PTX"):
        assert int(re.search(rf"^small volumes from {image}: (\d+) runs compared$", done.stdout, re.MULTILINE)[1]) > 100
    rows = re.findall(r"^  (\S.*?) +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d$", done.stdout, re.MULTILINE)
    assert {row.split(",")[0].split(" ")[0] for row in rows} == {"foreground", "resize", "argmax", "components", "contour", "count", "restore", "write"}
    assert re.search(r"^    components_select_u32 x \d+ +\d+\.\d{3}$", done.stdout, re.MULTILINE)
    asked = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert [line[1] for line in asked] == list(sanitizer.TOOLS)
    assert all(line[2:] == ["--error-exitcode", "9", str(bundle / "kernel_check"), "--small", "--seconds", str(sanitizer.LIKE_REAL)] for line in asked)
    assert "racecheck was not done within" in done.stdout


# A driver that never runs one of the kernels.
FORGETFUL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
static void *forgotten[8];
static int count;
unsigned cuModuleGetFunction(void **function, void *module, const char *name) {
  unsigned code = ((unsigned (*)(void **, void *, const char *))dlsym(RTLD_NEXT, "cuModuleGetFunction"))(function, module, name);
  if (code == 0 && strcmp(name, "contour_mask") == 0) forgotten[count++] = *function;
  return code;
}
typedef unsigned Launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
unsigned cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        void *stream, void **parameters, void **extra) {
  for (int at = 0; at < count; at++) {
    if (forgotten[at] == f) return 0;
  }
  return ((Launch *)dlsym(RTLD_NEXT, "cuLaunchKernel"))(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
"""


def in_front(emulated: Path, folder: Path, name: str, code: str) -> None:
    """A driver of that name: the emulated one, with these functions in C in front of it."""
    (folder / "front.c").write_text(code)
    # Under another name of the same length, so that the one in front of it can have its own.
    library = (emulated / "libcuda.so.1").read_bytes()
    (folder / "libfake.so.1").write_bytes(library.replace(b"libcuda.so.1\0", b"libfake.so.1\0"))
    command = ["cc", "-shared", "-fPIC", "-o", name, "front.c", "-Wl,--no-as-needed", "-L.", "-l:libfake.so.1"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)


def test_a_stub_for_linkers_is_not_taken_for_the_driver(bundle, emulated, tmp_path):
    """A CUDA toolkit has one called libcuda.so, which may be what the loader finds under that name."""
    in_front(emulated, tmp_path, "libcuda.so", "unsigned cuInit(unsigned flags) { return 34; }")
    command = [bundle / "kernel_check", "--small", "--seconds", "1"]

    def run(*folders: Path) -> subprocess.CompletedProcess:
        where = {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}
        return subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, timeout=120, check=False)

    alone = run(tmp_path)
    assert (alone.returncode, alone.stdout) == (2, "no usable NVIDIA driver: cuInit failed: CUDA error 34\n"), alone.stderr
    done = run(tmp_path, emulated)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_result_of_a_kernel_fails_the_check(bundle, emulated, tmp_path, monkeypatch):
    in_front(emulated, tmp_path, "libcuda.so.1", FORGETFUL)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    report = Report(tmp_path / "out", 60)
    given = Check(bundle, tmp_path, tmp_path, report, gpu=False)
    report.part("steps", lambda: steps.run(given), 0)
    said = r"failed: kernel_check ended with code 1: \d+ were wrong. The first: WRONG: .*contour of .* differ, first \d+: "
    assert re.match(said, report.outcomes["steps"]), report.lines
    assert report.finish({"steps"}) == FAILED


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("echo '========= ERROR SUMMARY: 3 errors'; exit 9", "failed: memcheck: code 9: ========= ERROR SUMMARY: 3 errors; racecheck: "),
        ("exit 1", "skipped: a compute-sanitizer that runs with this driver and GPU"),
        (None, "skipped: compute-sanitizer"),
    ],
    ids=["errors", "does not run", "is not there"],
)
def test_what_compute_sanitizer_finds_fails_the_check(tmp_path, monkeypatch, script, outcome):
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find", lambda: script and str(program))
    report = Report(tmp_path / "out", 60)
    report.part("sanitizer", lambda: sanitizer.run(Check(tmp_path, tmp_path, tmp_path, report, gpu=False)), 0)
    assert report.outcomes["sanitizer"].startswith(outcome)


def test_the_python_is_found_that_has_the_modules(bundle, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = check(bundle, tmp_path / "out", "--cpu", "--parts", "sanitizer", python="", PATH=path)
    assert f"({Path(sys.executable).parent / 'python3'})" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("free", "said"), [(1 << 40, None), (1 << 20, "system shared memory: 1 MiB of /dev/shm are free")])
def test_placement_says_which_memory_it_left_out(tmp_path, monkeypatch, free, said):
    """CUDA shared memory too, where the driver does not let processes share memory."""
    refused = "CUDA memory cannot be shared between processes here (cuIpcGetMemHandle failed with CUDA error 801)"
    seen = []

    def every(_check, _backend, _kinds, memories, _volume, _wrong):
        seen.extend(memories)
        return {"one": (b"1", b"1")}

    monkeypatch.setattr(placement, "every", every)
    monkeypatch.setattr(placement, "room", lambda: free)
    monkeypatch.setattr(placement, "sharing_refused", lambda: refused)
    report = Report(tmp_path / "out", 60)
    report.part("placement", lambda: placement.run(Check(tmp_path, tmp_path, tmp_path, report, gpu=True)), 0)
    assert report.outcomes["placement"] == f"passed: without {said}; CUDA shared memory: {refused}".replace("None; ", "")
    assert seen == (["host"] if said else ["host", "system"])
    assert report.finish({"placement"}) == PASSED


def test_memory_of_a_gpu_through_the_driver(bundle, emulated):
    """On the emulated driver, which lets no process share memory."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        env={**os.environ, "PYTHONPATH": str(bundle), "LD_LIBRARY_PATH": str(emulated)}, capture_output=True, text=True, timeout=60, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


DRIVER = """
import ctypes, os, tempfile
from pathlib import Path
from gpu_check import driver, regions

assert driver.gpus()[0] > 0
before = driver.memory_in_use()
region = regions.CudaRegion(1 << 20)
assert driver.memory_in_use() - before >= 1 << 20
region.close()
assert driver.memory_in_use() == before
with tempfile.TemporaryDirectory() as folder:
    driver.provide(Path(folder) / "driver")
    assert os.environ["LD_LIBRARY_PATH"].startswith(f"{folder}/driver:")
    for name in ("libcuda.so", "libcuda.so.1"):
        assert (Path(folder) / "driver" / name).resolve() == driver.path().resolve()
assert "(the driver has no cuIpcGetMemHandle)" in driver.sharing_refused()
"""


def test_what_is_written_to_memory_of_a_gpu_has_arrived(emulated, tmp_path):
    """With a driver whose copies from the host are done when something waits for them."""
    in_front(emulated, tmp_path, "libcuda.so.1", LAZY)
    written = "import numpy as np\nfrom gpu_check import driver, regions\nregions.CudaRegion(64).write(np.ones(16, np.float32))\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{written}assert (driver.library().copies(), driver.library().waiting()) == (1, 0)"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


LAZY = """
#include <stddef.h>
static int copied, pending;
unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { copied++; pending++; return 0; }
unsigned cuCtxSynchronize(void) { pending = 0; return 0; }
int copies(void) { return copied; }
int waiting(void) { return pending; }
"""


def test_what_is_no_bundle_and_no_part_is_said(tmp_path):
    done = check(ROOT / "scripts", tmp_path / "out")
    assert done.returncode == NOTHING_CHECKED and "scripts/gpu_bundle.sh makes one" in done.stderr
    done = check(ROOT / "scripts", tmp_path / "out", python="no-such-python")
    assert done.returncode == NOTHING_CHECKED


def test_a_server_that_does_not_start_fails_with_its_own_words(bundle, tmp_path):
    """A part that fails leaves exit code 1 and the server's last error, and nothing of the server."""
    backends = tmp_path / "backends"
    backends.mkdir()
    report = Report(tmp_path / "out", 60)
    given = Check(bundle, tmp_path, backends, report, gpu=False)
    spleen(bundle, tmp_path / "models", False, (8, 8, 8))
    entered = []

    def part():
        with Server(given, tmp_path / "models", "broken") as server:
            entered.append(server)

    report.part("broken", part, 0)
    assert not entered
    assert "tritonserver ended with code" in report.outcomes["broken"] and "spleenseg" in report.outcomes["broken"]
    assert report.finish({"broken"}) == FAILED


def test_every_difference_from_monai_is_found(bundle):
    case = next(case for case in parity.load(bundle) if "MASK_NATIVE" in case["expected"] and case["expected"]["MASK"].any())
    arrays = {
        "MASK": np.unpackbits(case["expected"]["MASK"], count=case["resized"].size),
        "CONTOUR": np.unpackbits(case["expected"]["CONTOUR"], count=case["resized"].size),
        "MASK_NATIVE": np.unpackbits(case["expected"]["MASK_NATIVE"], count=case["image"].size),
        "CONTOUR_NATIVE": np.unpackbits(case["expected"]["CONTOUR_NATIVE"], count=case["image"].size),
    }
    start, end = case["box"]
    said = {"crop_start": f"[{start}]", "crop_end": f"[{end}]"}
    resized = case["resized"].ravel()
    assert parity.differences(case, resized, arrays, said) == []
    moved = {**said, "crop_end": f"[{[n + 1 for n in end]}]"}
    assert len(parity.differences(case, resized, arrays, moved)) == 1
    for wrong in (resized[0] + 2e-5, np.nan, np.inf):
        assert "1 resized voxels" in str(parity.differences(case, np.concatenate([[wrong], resized[1:]]), arrays, said))
    assert "resized voxels" in str(parity.differences(case, resized[1:], arrays, said))
    for name, array in arrays.items():
        flipped = array.copy()
        flipped[0] ^= 1
        assert parity.differences(case, resized, {**arrays, name: flipped}, said) == [f"1 voxels of {name}"]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ({"a": None, "b": None}, PASSED),
        ({"a": None, "b": Skip("a thing")}, PASSED),
        ({"a": Skip("a thing"), "b": None}, NOTHING_CHECKED),
        ({"a": Skip("a thing"), "b": Skip("a thing")}, NOTHING_CHECKED),
        ({"a": ValueError("wrong"), "b": None}, FAILED),
        ({"a": Skip("a thing"), "b": ValueError("wrong")}, FAILED),
        ({"a": None, "b": OutOfTime()}, FAILED),
    ],
    ids=str,
)
def test_exit_codes(tmp_path, outcomes, code):
    """Part a is of what the check is for, part b is not."""
    report = Report(tmp_path / "out", 60)

    def raise_it(what):
        if what is not None:
            raise what

    try:
        for name, outcome in outcomes.items():
            report.part(name, lambda outcome=outcome: raise_it(outcome), 0)
    except OutOfTime:
        pass
    assert report.finish({"a"}) == code


def test_a_part_that_has_no_time_left_is_skipped(tmp_path):
    report = Report(tmp_path / "out", seconds=10)
    report.part("long", lambda: pytest.fail("it ran"), needs_s=60)
    assert report.outcomes["long"].startswith("skipped: 60 s of the 10 minutes")


LIMITED = '''
import sys, time
from pathlib import Path
from gpu_check.__main__ import watch, within
from gpu_check.report import OutOfTime, Report

def hang():
    try:
        time.sleep(30)
    except Exception:
        print("swallowed")

def part(seconds, work):
    with within(seconds, report):
        work()

report = Report(Path(sys.argv[1]), 6)
watch(report)
try:
    report.part("hangs", lambda: part(1, hang), 0)
    report.part("next", lambda: part(1, lambda: None), 0)
    report.part("last", lambda: part(60, hang), 0)
except OutOfTime:
    report.outcomes["unreached"] = "skipped: time"
sys.exit(report.finish({"next"}))
'''


def test_a_part_that_hangs_leaves_time_for_the_next_and_the_whole_has_its_end(tmp_path):
    """In a process of its own: pytest's timeout uses the same timer."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "out"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")}, capture_output=True, text=True, timeout=120, check=False,
    )
    assert done.returncode == FAILED and "swallowed" not in done.stdout, done.stdout + done.stderr
    assert outcomes(done) == {
        "hangs": "failed: not done within 1 s", "next": "passed", "last": "failed: not done within 10 minutes", "unreached": "skipped: time"
    }


HUNG = '''
import os, signal, sys
from pathlib import Path
from gpu_check import server
from gpu_check.__main__ import watch, within
from gpu_check.check import Check
from gpu_check.regions import SystemRegion
from gpu_check.report import Report

bundle, out, models = map(Path, sys.argv[1:])
server.EXIT_S = 1
report = Report(out, 60)
watch(report)

def part():
    with server.Server(Check(bundle, out, out, report, gpu=False), models, "hung") as hung, within(2, report):
        try:
            with hung.region(SystemRegion, 4096), hung.region(SystemRegion, 4096):
                os.kill(hung.process.pid, signal.SIGSTOP)
                hung.ask("health/ready")
        except RuntimeError:
            print("swallowed")

report.part("hangs", part, 0)
sys.exit(report.finish({"hangs"}))
'''


def test_a_server_that_hangs_with_regions_ends_with_its_part(bundle, tmp_path):
    """It is not asked again, and nothing takes the end of the part's time for a failure of one request."""
    (tmp_path / "models").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", HUNG, bundle, tmp_path / "out", tmp_path / "models"],
        env={**os.environ, "PYTHONPATH": str(bundle)}, capture_output=True, text=True, timeout=100, check=False,
    )
    assert done.returncode == FAILED and "swallowed" not in done.stdout, done.stdout + done.stderr
    assert outcomes(done) == {"hangs": "failed: not done within 2 s"}
    assert not list(Path("/dev/shm").glob("gpu_check_*"))


STUBBORN = """#!{python}
import http.server, mmap, os, signal, sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open({region!r}, "w+b") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
port = next(int(option.partition("=")[2]) for option in sys.argv if option.startswith("--http-port="))


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""


@pytest.mark.parametrize("end", [subprocess.TimeoutExpired, OutOfTime])
def test_a_server_that_is_killed_leaves_nothing_in_shared_memory(tmp_path, monkeypatch, end):
    """What the Python backend had there goes; what another server has stays. The time may be over while its end is waited for."""
    name = f"/dev/shm/triton_python_backend_shm_region_test_{os.getpid()}"
    own, other = Path(f"{name}_own"), Path(f"{name}_other")
    executable = tmp_path / "triton" / "bin" / "tritonserver"
    executable.parent.mkdir(parents=True)
    executable.write_text(STUBBORN.format(python=sys.executable, region=str(own)))
    executable.chmod(0o755)
    monkeypatch.setattr(server, "EXIT_S", 1)
    other.touch()
    given = Check(tmp_path, tmp_path, tmp_path, Report(tmp_path / "out", 60), gpu=False)

    def interrupted(*_seconds):
        stubborn.process.wait = wait
        raise OutOfTime

    try:
        with pytest.raises(OutOfTime) if end is OutOfTime else nullcontext(), Server(given, tmp_path, "stubborn") as stubborn:
            assert own.exists()
            wait = stubborn.process.wait
            if end is OutOfTime:
                stubborn.process.wait = interrupted
        assert not own.exists() and other.exists()
    finally:
        own.unlink(missing_ok=True)
        other.unlink(missing_ok=True)


@pytest.mark.parametrize(("gpu", "options"), [(True, ["--cuda-memory-pool-byte-size=0:536870912"]), (False, [])])
def test_every_server_that_is_measured_has_a_pool_that_holds_the_scores(tmp_path, monkeypatch, gpu, options):
    given = Check(tmp_path, tmp_path, tmp_path, Report(tmp_path / "out", 60), gpu=gpu)
    started = []

    class Started(Server):
        def __enter__(self):
            started.append([option for option in self.command if "cuda-memory-pool" in option])
            raise RuntimeError("not to be measured")

    for part in (benchmark, torchscript):
        monkeypatch.setattr(part, "Server", Started)
    monkeypatch.setattr(torchscript, "spleen", lambda *_, **__: tmp_path)
    for part in ("network", "spleen", "gpu_memory"):
        monkeypatch.setattr(benchmark, part, lambda *_, **__: tmp_path)
    monkeypatch.setattr(benchmark.shutil, "copy", lambda *_: None)
    monkeypatch.setattr(benchmark, "find_spec", lambda _name: SimpleNamespace(origin=__file__))
    for title in benchmark.STACKS:
        with pytest.raises(RuntimeError, match="not to be measured"):
            benchmark.stack(given, title, None, {}, [])
    with pytest.raises(RuntimeError, match="not to be measured"):
        torchscript.serve(given, tmp_path, "torchscript")
    assert started == [options] * 3


def test_the_library_of_a_python_that_was_moved_is_found(tmp_path, monkeypatch):
    """The build of one that uv installed may name a folder of the machine that made it."""
    moved = tmp_path / "moved" / "lib"
    moved.mkdir(parents=True)
    monkeypatch.setattr(needs.sysconfig, "get_config_var", lambda _name: "/install/lib")
    monkeypatch.setattr(needs.sys, "base_prefix", str(moved.parent))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert needs.library_path(tmp_path) == f"{tmp_path}/triton/lib"
    (moved / f"libpython{needs.PYTHON}.so.1.0").touch()
    assert needs.library_path(tmp_path) == f"{tmp_path}/triton/lib:{moved}"


@pytest.mark.parametrize(("prefix", "said"), [("/usr", "(Debian, Ubuntu: apt-get install libpython"), ("/opt/python", "(the Python in /opt/python was built without it;")])
def test_a_python_without_its_library_is_said(tmp_path, monkeypatch, prefix, said):
    stub = tmp_path / "triton" / "python_backend_stubs" / needs.PYTHON / "triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    (tmp_path / "stub.c").write_text("int main(void) { return 0; }\n")
    library = ["cc", "-shared", "-o", "libpython0.so", "-Wl,-soname,libpython0.so.1.0", "-x", "c", os.devnull]
    for command in (library, ["cc", "-o", stub, "stub.c", "-Wl,--no-as-needed", "./libpython0.so"]):
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    monkeypatch.setattr(needs.sys, "base_prefix", prefix)
    missing = needs.Machine(tmp_path).missing("stub")
    assert missing.startswith(f"libpython0.so.1.0, for Triton's Python backend {said}")


@pytest.mark.parametrize(
    ("torch", "missing"),
    [
        ("raise OSError('no such library')", "a PyTorch that can be imported (here: OSError: no such library)"),
        ("import os; os.abort()", "a PyTorch that can be imported (here: code -6)"),
        ("import time; time.sleep(60)", "a PyTorch that looks for the GPU within 3 s"),
        ("__version__ = '2.0'\nclass cuda: is_available = lambda: False", "a PyTorch with CUDA for this driver (PyTorch 2.0 sees no GPU)"),
        ("__version__ = '2.0'\nprint('hello')\nclass cuda: is_available = lambda: True", ""),
    ],
    ids=["broken", "killed", "hangs", "without CUDA", "good"],
)
def test_a_pytorch_that_does_not_work_is_missing_and_breaks_no_part(tmp_path, monkeypatch, torch, missing):
    (tmp_path / "torch.py").write_text(torch + "\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(needs, "gpus", lambda: (1, ""))
    monkeypatch.setattr(needs, "TORCH_S", 3)
    assert needs.Machine(tmp_path).missing("cuda_torch") == missing


def test_of_many_that_are_wrong_the_first_are_said_and_all_are_kept(tmp_path):
    given = Check(tmp_path, tmp_path, tmp_path, Report(tmp_path / "out", 60), gpu=False)
    given.fail_if([], "none")
    with pytest.raises(AssertionError, match=r"^case 0; .*case 4; 2 more in parity\.wrong\.txt$"):
        given.fail_if([f"case {n}" for n in range(7)], "parity")
    assert len((tmp_path / "out" / "parity.wrong.txt").read_text().splitlines()) == 7
    assert not (tmp_path / "out" / "none.wrong.txt").exists()


def test_a_benchmark_that_lacks_monai_measures_this_backend_alone(tmp_path, monkeypatch):
    given = Check(tmp_path, tmp_path, tmp_path, Report(tmp_path / "out", 60), gpu=False)
    measured = []

    def stack(_check, title, network, _ways, _wrong):
        measured.append((title, network.name))
        return {"HTTP": made_up_run(10, [0, 1, 1])}

    monkeypatch.setattr(benchmark, "stack", stack)
    monkeypatch.setitem(sys.modules, "monai", None)
    monkeypatch.setattr(benchmark, "find_spec", lambda _name: None)
    with pytest.raises(Skip, match=r"a MONAI that works here \(.*\); the Python module skimage, .*\. This backend was measured alone"):
        benchmark.run(given)
    assert measured == [("this backend", "model.pt")]


def made_up_run(milliseconds: float, mask: list[float]) -> Run:
    times = [milliseconds, 2 * milliseconds, 3 * milliseconds]
    return Run(times, {"queue": 0.5, "compute infer": milliseconds}, np.float32(mask).tobytes(), {})


def test_the_benchmarks_tables_compare_the_two_backends(tmp_path):
    report = Report(tmp_path / "out", 60)
    given = Check(tmp_path, tmp_path, tmp_path, report, gpu=False)
    theirs, ours = {"HTTP": made_up_run(30, [0, 1, 1])}, {"HTTP": made_up_run(10, [0, 1, 1])}
    benchmark.tell(given, theirs, ours)
    said = [line.split("  ") for line in report.lines[1].splitlines()]
    (row,) = [[cell.strip() for cell in line if cell.strip()] for line in said if "HTTP" in "".join(line)]
    assert row == ["HTTP", "60.0 (30.0..90.0)", "20.0 (10.0..30.0)", "3.00", "3"]
    assert "masks over HTTP: 0 of 3 voxels differ, 2 are set" in report.lines
    # A way that failed on one side is not compared.
    lines = len(report.lines)
    benchmark.tell(given, {"system shared memory": made_up_run(30, [1])}, ours)
    assert len(report.lines) == lines
    with pytest.raises(AssertionError, match="other masks"):
        benchmark.tell(given, theirs, {"HTTP": made_up_run(10, [0, 0, 1])})


def test_the_shipped_configurations_take_what_is_changed(tmp_path):
    for shipped in ("spleen_seg", "spleen_seg_native"):
        parameters = {"margin": [0, 4, 2], "allow_smaller": False, "align_corners": None}
        folder = spleen(ROOT, tmp_path, True, (9, 8, 7), parameters, name=f"{shipped}_here", child="other", shipped=shipped)
        config = (folder.parent / "config.pbtxt").read_text()
        assert "KIND_CPU" not in config and "224" not in config.replace("-224", "")
        for key, value in {**parameters, "spatial_size": (9, 8, 7), "segmentation_model": "other"}.items():
            assert config.count(f'key: "{key}" value {{ string_value: "{text(value)}" }}') == 1
    with pytest.raises(RuntimeError, match="has no 'backend"):
        spleen(ROOT, tmp_path, True, (9, 8, 7), name="x", shipped="segmentation_3d")

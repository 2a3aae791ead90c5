"""What the benchmark makes of its recordings: ratios, targets, the model repositories, and the report."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from bench import __main__ as program
from bench import equality, figures, inputs, readme, reasons, report, repositories, summary, targets
from bench.settings import FULL, QUICK
from bench.tables import table
from bench.yardstick import Copy
from conftest import NETWORK_MS, ROOT, made_up_run


def test_a_ratio_is_taken_within_each_round():
    # Between rounds the machine's speed changes by ten; within a round one is always twice the other.
    assert summary.ratio({0: 2.0, 1: 20.0, 2: 7.0}, {0: 1.0, 1: 10.0}) == summary.Spread(2.0, 2.0, 2.0)
    assert summary.ratio({0: 1.0}, {1: 1.0}) is None


def test_a_spread_is_the_median_with_the_extremes():
    assert summary.Spread.of([5.0, 1.0, 2.0]) == summary.Spread(2.0, 1.0, 5.0)
    assert summary.Spread.of([]) is None
    assert summary.Spread(1234.5, 1.0, 2000.0).text(1, " ms") == "1,234.5 ms (1.0..2,000.0)"


def test_everything_but_the_network_is_counted_alike_for_every_stack(results):
    labels = {"section": "headline", "transport": "shm"}
    assert summary.by_round(results, summary.pipeline, **labels, stack="rust") == {0: 50.0, 1: 100.0, 2: 50.0}
    assert summary.by_round(results, summary.pipeline, **labels, stack="python") == {0: 4000.0, 1: 8000.0, 2: 4000.0}
    assert summary.spread(results, summary.call_overhead, **labels, stack="rust") == summary.Spread(0.0, 0.0, 0.0)


def verdicts(results: dict) -> dict[str, bool | None]:
    return {target.text: target.met for target in targets.evaluate(results)}


def test_every_target_is_judged(full_results):
    judged = verdicts(full_results)
    # 50 ms are 2.5 copies of 20 ms, and Python's 4,000 ms are 80 times as much.
    missed = [text for text, met in judged.items() if met is not True]
    # Alone the network is faster by the steps around it, which do not overlap in the made-up runs.
    assert missed == [text for text in judged if text.startswith("throughput")]
    assert [judged[text] for text in missed] == [False, False]


def test_what_was_not_measured_is_neither_met_nor_missed(results):
    judged = verdicts(results)
    assert judged["compute_input + compute_output in copies of INPUT0, zero"] is True
    assert judged["compute_input + compute_output in copies of INPUT0, noise"] is None
    assert judged["spleen_seg's own load"] is None


def test_targets_can_be_missed(full_results):
    full_results["memory"][1]["peak_mb"] = 1201.0
    full_results["soak"][-1]["rest_mb"] += 17
    full_results["ready"][-1]["seconds"] = 1.1
    full_results["yardstick"] = [{"round": 0, "ms": 10.0}]
    for run in summary.runs(full_results, section="growth", stack="rust", slices=1000):
        run["statistics"]["spleen_seg"]["compute_input_ms"] *= 1.3
        run["peak_mb"] += 1000
    missed = {text for text, met in verdicts(full_results).items() if met is False and not text.startswith("throughput")}
    assert missed == {
        "compute_input + compute_output in copies of INPUT0, zero",
        "compute_input + compute_output in copies of INPUT0, phantom",
        "peak RssAnon beyond the server with the network alone",
        "rise of RssAnon at rest over 500 requests",
        "peak RssAnon at 1000 slices (1 GB) beyond that at 114",
        "time for a slice at 1000 slices, in that at 600 (300)",
        "spleen_seg's own load",
    }


def test_the_headline_is_the_comparison_that_flatters_less(results):
    ratios = targets.whole_request(results)
    # Both Python stacks have the same pipeline here, and the one with the slower network makes the larger ratio.
    assert targets.less_flattering(ratios) == ("python", ratios["python"])
    for run in summary.runs(results, stack="python_whole"):
        run["client"]["latency_ms"] = NETWORK_MS
    stack, ratio = targets.less_flattering(targets.whole_request(results))
    assert (stack, ratio.middle) == ("python_whole", pytest.approx(3000 / 3050))


def test_the_report_has_every_table(full_results):
    full_results["runs"].append(made_up_run("python_whole", 0, section="concurrency", instances=1))
    text = report.write(full_results, figures.shown(full_results))
    assert "not measured" not in text
    assert "busy" not in text
    for published in ("517", "564", "252", "3,078"):
        assert published in text
    assert all(f"]({name})" in text for name, _, _ in figures.FIGURES)
    assert "| everything but the network, zero volume, ms | 4,000 (4,000..8,000) | 50 (50..100) | 80.0 (80.0..80.0) |" in text
    # Two whole models at once reach 0.984 of the network's throughput in these results.
    assert text.count("**missed** by 1.6%") == 2


def test_a_person_can_explain_a_result(full_results):
    text = report.write(full_results, [], "The network uses both cores.\n")
    assert text.index("## Targets") < text.index("The network uses both cores.") < text.index("## Where the time goes")


def test_a_missed_target_is_explained_by_its_parts(full_results):
    for run in summary.runs(full_results, model="segmentation_3d"):
        run["client"]["throughput"] = 0.1
    assert reasons.write(full_results) == "", "all are met"
    # 50 ms are 5 copies of 10 ms; the bytes that must move are 344 MB, and a copy moves 239 MB.
    full_results["yardstick"] = [{"round": 0, "ms": 10.0}]
    full_results["memory"][1]["peak_mb"] = 1201.0
    said = reasons.write(full_results)
    assert said.count("\n- **") == 2 and "**Peak memory.**" in said
    assert "344 MB, would take 14.4 ms at the speed of the copy, that is 1.4 copies. By step, ms: foreground 3.0." in said
    assert "network 3" not in said
    assert said in report.write(full_results, [])
    for run in summary.runs(full_results, model="spleen_seg", stack="rust"):
        run["client"]["latency_ms"] += 2000
    assert "+0 beside alone" in reasons.write(full_results)


def test_the_headline_goes_into_the_readme(full_results, tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
    readme.update(page, full_results)
    readme.update(page, full_results)
    text = page.read_text()
    assert text.startswith(f"before\n{readme.BEGIN}\nStock Triton 2.0") and text.endswith(f"\n{readme.END}\nafter\n") and "old" not in text
    assert "| everything but the network, zero volume, ms | 4,000 (4,000..8,000) | 50 (50..100) | 80.0 (80.0..80.0) |" in text
    page.write_text("nothing of the kind")
    with pytest.raises(RuntimeError, match="no part between"):
        readme.update(page, full_results)
    readme.update(_copy_of_the_readme(tmp_path), full_results)


def test_the_network_alone_is_a_measurement_of_its_own(full_results):
    """It can take longer than a whole request, in which it was measured at another time."""
    for run in summary.runs(full_results, section="alone"):
        run["client"]["latency_ms"] = 9000.0
    said = f"{NETWORK_MS:,.0f} ms within this backend's requests over shared memory; called alone, in measurements of its own between these, 9,000 ms"
    assert said in re.sub(r" \(.*?\)", "", report.network_times(full_results))
    for page in (readme.headline(full_results), report.write(full_results, [])):
        assert report.network_times(full_results) in page


def _copy_of_the_readme(folder):
    copy = folder / "copy.md"
    copy.write_text((ROOT / "README.md").read_text())
    return copy


def test_the_terminal_gets_the_headline_and_the_targets(full_results):
    text = report.console(full_results)
    assert "system shared memory" in text and "spleen_seg's own load" in text
    assert len(text) < len(report.write(full_results, []))


def test_a_report_of_little_says_what_is_missing(results):
    results["left_out"], results["failed"] = ["growth with slices"], ["noise"]
    results["made"]["load_average"] = 3.0
    text = report.write(results, figures.shown(results))
    assert "not measured" in text
    assert "Left out for lack of time: growth with slices." in text
    assert "**Failed**: noise." in text
    assert "**The machine was busy**" in text
    assert "growth.svg" not in text


def test_a_table_with_a_short_row_is_refused():
    assert table(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | ---: |\n| x/y | 1 |"
    with pytest.raises(ValueError, match="2 columns"):
        table(["a", "b"], [["only one"]])


def test_the_repositories_differ_in_the_backend_alone(tmp_path):
    network = tmp_path / "model.pt"
    network.write_bytes(b"weights")
    shipped = (ROOT / "models" / "spleen_seg" / "config.pbtxt").read_text().splitlines()
    for stack in repositories.STACKS.values():
        folder = repositories.write(tmp_path / stack.name, stack, network)
        assert (folder / "segmentation_3d" / "1" / "model.pt").read_bytes() == b"weights"
        assert (folder / "segmentation_3d" / "1" / "model.py").exists() == (stack.network == "python")
        assert (folder / "spleen_seg").exists() == (stack.pipeline is not None)
        if stack.pipeline:
            written = (folder / "spleen_seg" / "config.pbtxt").read_text().splitlines()
            changed = [line for line, before in zip(written, shipped, strict=True) if line != before]
            assert changed == ([f'backend: "{stack.pipeline}"'] if stack.pipeline != "spleenseg" else [])


def test_instances_and_notes_of_steps_are_added(tmp_path):
    network = tmp_path / "model.pt"
    network.touch()
    folder = repositories.write(tmp_path / "r", repositories.PYTHON, network, instances=2, step_times=tmp_path / "notes")
    config = (folder / "spleen_seg" / "config.pbtxt").read_text()
    assert "count: 2" in config and "count: 1" not in config
    assert f'key: "STEP_TIMES" value {{ string_value: "{tmp_path / "notes"}" }}' in config
    assert "count: 2" in (folder / "segmentation_3d" / "config.pbtxt").read_text()


def test_a_configuration_of_another_form_is_refused():
    with pytest.raises(ValueError, match="0 places"):
        repositories.with_backend('name: "x"\n', "python")


def test_answers_that_differ_by_more_than_rounding_stop_the_benchmark():
    ours = {"MASK": np.zeros((1, 1, 50, 50, 50), np.float32), "CONTOUR": np.zeros((1, 1, 50, 50, 50), np.float32)}
    theirs = {name: array.copy() for name, array in ours.items()}
    theirs["MASK"][0, 0, 1, 1, 1] = 1
    assert equality.compare(ours, theirs) == {"MASK": 1, "CONTOUR": 0}
    theirs["MASK"][0, 0, 1, 1, :2] = 1
    with pytest.raises(equality.NotEqual, match="MASK: 2 of 125000 voxels differ"):
        equality.compare(ours, theirs)
    with pytest.raises(equality.NotEqual, match="uint8"):
        equality.compare(ours, {**ours, "CONTOUR": ours["CONTOUR"].astype(np.uint8)})


def test_noise_makes_very_many_components():
    small = inputs.noise((64, 64, 32))
    scatter = inputs.as_the_network_gets_it(small)[0, 0] > inputs.THRESHOLD
    largest_share = 0.01
    count = equality.components(scatter)
    assert count > 100
    assert scatter.mean() > largest_share


def test_the_copy_is_checked_and_takes_time():
    copy = Copy(3_000_001)
    assert 0 < copy.best_ms(3) < 1000


def test_the_quick_run_is_a_smaller_full_run():
    assert QUICK.rounds >= 2  # one round has no spread
    assert QUICK.deadline_s < 300
    assert QUICK.rounds * QUICK.requests < FULL.rounds * FULL.requests
    assert set(QUICK.growth) < set(FULL.growth)


class FakeSession:
    """As much of a session as decides whether a section runs."""

    def __init__(self, time_left: bool):
        self.results = {"failed": [], "ran": []}
        self.time_left, self.said = time_left, []

    def has_time(self, _name: str, _seconds: float) -> bool:
        return self.time_left

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_section_that_fails_does_not_cost_the_others():
    session = FakeSession(time_left=True)

    def fail(_session):
        raise RuntimeError("perf_analyzer failed")

    program.optional(session, "noise", 1, fail)
    program.optional(session, "growth", 1, lambda s: s.results["ran"].append("growth"))
    assert session.results == {"failed": ["noise"], "ran": ["growth"]}
    assert session.said == ["noise failed: perf_analyzer failed"]


def test_a_section_that_does_not_fit_is_not_begun():
    session = FakeSession(time_left=False)
    program.optional(session, "growth", 1, lambda s: s.results["ran"].append("growth"))
    assert session.results == {"failed": [], "ran": []}


def test_the_report_can_be_written_without_torch(full_results, tmp_path):
    """The pictures are drawn in an environment that has matplotlib and nothing of the rest."""
    source = (
        "import sys, json\n"
        "for name in ('torch', 'monai', 'tritonclient', 'scipy'): sys.modules[name] = None\n"
        "from bench import figures, summary, targets\n"
        "results = json.load(open(sys.argv[1]))\n"
        "assert targets.inputs(results) and figures.shown(results)\n"
    )
    stored = tmp_path / "results.json"
    stored.write_text(json.dumps(full_results))
    subprocess.run([sys.executable, "-c", source, str(stored)], check=True, cwd=ROOT / "scripts")

"""Research programs are timed from a cold start; how fast they are is not a matter for tests."""

import json
import time

import numpy as np
import pytest

from benchmarks import __main__, ablation, beside, libraries, research, worker
from benchmarks.measuring import disagreement
from benchmarks.research import measuring, report, running
from benchmarks.research.measuring import Measured


@pytest.mark.parametrize("name", research.NAMES)
def test_a_program_runs_and_agrees_with_itself_jitted(name):
    noise = running.FixedNoise()
    _, eager = running.start("fdbr", name, tiny=True, noise=noise).loop(2)
    assert all(np.isfinite(array).all() for result in eager for array in result)
    _, jitted = running.start("fdbr.jit", name, tiny=True, noise=noise).loop(2)
    assert disagreement(jitted, eager, research.load(name).RTOL) is None


@pytest.mark.parametrize("name", [name for name in research.NAMES if name != "hmc"])
def test_a_program_goes_on_from_its_state(name):
    _, (first, second) = running.start("fdbr", name, tiny=True).loop(2)
    assert first[-1] != second[-1]


def test_the_command_prints_ratios_and_writes_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(__main__, "_limit_threads", lambda threads: None)
    arguments = ["hmc", "heat", "--tiny", "--libraries=fdbr", "--calls=1,4"]
    __main__.main(["research", *arguments, f"--output={tmp_path}"])
    printed = capsys.readouterr().out
    assert "heat: heat equation" in printed
    assert "fails" not in printed
    document = json.loads((tmp_path / "research.json").read_text())
    assert [each["program"] for each in document["programs"]] == ["hmc", "heat"]
    seconds = document["programs"][1]["seconds"]["fdbr"]
    assert 0 < seconds["1"] < seconds["4"]


def test_the_command_lists_programs_and_refuses_unknown_ones(capsys):
    __main__.main(["research", "--list"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in research.NAMES)
    with pytest.raises(SystemExit):
        __main__.main(["research", "maml", "mami"])
    assert "unknown program ['mami']" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        __main__.main(["research", "--calls=10,1"])
    assert "must rise" in capsys.readouterr().err


def test_numbers_of_calls_that_were_not_reached_in_time_bound_the_ratios():
    both = {"fdbr": {1: 2.0, 10: 20.0}, "fdbr.jit": {1: 3.0}}
    measured = Measured("made_up", "made up", {}, 60.0, both, {"jax.jit": "not installed"})
    assert measured.ratio("fdbr.jit", "fdbr", 1) == ("=", 1.5)
    assert measured.ratio("fdbr.jit", "fdbr", 10) == (">", 3.0)
    assert measured.ratio("fdbr", "fdbr.jit", 10) == ("<", 1 / 3)
    assert measured.ratio("fdbr.jit", "fdbr", 100) is None
    assert measured.ratio("fdbr.jit", "jax.jit", 1) is None
    printed = report.table(measured, (1, 10, 100))
    assert "> 60" in printed
    assert "> 3.00" in printed
    assert "jax.jit: not installed" in printed


def test_what_takes_too_long_is_not_waited_for():
    plan = measuring.Plan(("fdbr",), counts=(1, 10**9), limit=0.3, tiny=True)
    measured = measuring.measure("heat", plan)
    assert set(measured.seconds["fdbr"]) <= {1}
    assert not measured.notes


def _sleep(pipe):
    worker.answering(pipe, time.sleep)


def test_a_process_that_is_late_is_ended():
    process = worker.Process(_sleep)
    with pytest.raises(worker.LateError, match=r"no answer within 0\.1 s"):
        process.ask(100, within=0.1)
    process.end()
    assert not process._process.is_alive()


def test_libraries_that_are_absent_or_disagree_are_named(monkeypatch):
    def timed(library, program, name, plan):
        if library == "jax.jit":
            raise worker.FailedError("not installed: pip install jax")
        return {1: 1.0}, [[np.float32(len(library))]]

    monkeypatch.setattr(measuring, "_timed", timed)
    measured = measuring.measure("heat", measuring.Plan(counts=(1,), tiny=True))
    assert measured.notes["jax.jit"] == "not installed: pip install jax"
    assert "disagrees with fdbr in call 1: 8, not 4" in measured.notes["fdbr.jit"]
    with pytest.raises(libraries.AbsentError, match="not installed: pip install nobody"):
        running.start("nobody", "heat")


def test_an_ablation_has_a_ratio_for_each_pass(capsys):
    ablation.main(["adam", "--tiny", "--rounds", "1", "--shortest", "0.0001"])
    heads, row = capsys.readouterr().out.splitlines()
    assert row.startswith("adam")
    assert len(row.split()) == len(heads.split()) + 2  # the name, and a unit


@pytest.mark.slow
def test_a_step_beside_other_libraries_has_a_ratio_for_each(capsys, monkeypatch):
    monkeypatch.setattr(beside, "NEIGHBOURS", {})
    beside.main(["mlp", "--tiny", "--rounds", "1", "--starts", "1"])
    heads, row = capsys.readouterr().out.splitlines()
    assert row.startswith("mlp")
    assert len(row.split()) == len(heads.split()) + 2

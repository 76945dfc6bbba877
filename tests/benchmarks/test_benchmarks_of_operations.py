"""Single operations are timed beside PyTorch's; how fast they are is not a matter for tests."""

import fnmatch
import importlib.util
import json

import numpy as np
import pytest
from ops.test_registry import public_names

from benchmarks import __main__, timing
from benchmarks.operations import absent, measuring, report
from benchmarks.operations.measuring import Measured

PROGRAMS = measuring.programs()


def test_every_public_operation_is_timed_or_has_a_reason_why_not():
    timed = {program.operation for program in PROGRAMS.values()}
    excused = {name for names in absent.WITHOUT_COUNTERPART.values() for name in names.split()}
    missing = {
        name
        for name in public_names() - timed - excused
        if not any(fnmatch.fnmatch(name, pattern) for pattern in excused if "*" in pattern)
    }
    assert not missing, (
        "add programs to benchmarks/operations, or reasons to benchmarks/operations/absent.py, "
        f"for {sorted(missing)}"
    )
    assert not timed & excused
    assert timed <= public_names()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_its_gradient_is_finite(name):
    program = PROGRAMS[name]
    for gradient in (False, program.gradient)[: 1 + program.gradient]:
        step = measuring._step_of_fdbr(program, program.draw(measuring.Draw(8)), gradient)
        _, results = step(None, None)
        assert results
        for result in results:
            assert not program.alike or np.isfinite(result).all()


@pytest.mark.slow
def test_the_command_prints_ratios_and_writes_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(__main__, "_limit_threads", lambda threads: None)
    libraries = "fdbr,fdbr.jit,numpy" + ",torch" * (importlib.util.find_spec("torch") is not None)
    monkeypatch.setattr(timing, "SHORTEST", 0.0)
    arguments = ["--only=power/3,sort/rows,gather", "--sizes=8", f"--libraries={libraries}"]
    __main__.main(["ops", *arguments, "--rounds=1", "--quick", f"--output={tmp_path}"])
    printed = capsys.readouterr().out
    assert "power/3" in printed
    assert "disagrees" not in printed
    assert "fails" not in printed
    document = json.loads((tmp_path / "operations.json").read_text())
    assert len(document["operations"]) == 6
    assert document["operations"][0]["seconds"]["fdbr"][0] > 0
    assert "from_dlpack" in str(document["without counterpart"])


def test_ratios_are_of_medians_and_what_is_too_slow_is_named():
    measured = [
        Measured("slow", 8, False, {"fdbr": [3.0, 9.0, 2.0], "torch": [1.0, 1.0, 1.0]}),
        Measured("fast", 8, False, {"fdbr": [1 / 3] * 3, "torch": [1.0] * 3}),
    ]
    assert measured[0].ratio("fdbr") == 3
    assert measured[0].ratio("fdbr.jit") is None
    assert "above 1.2 with 8 elements, value: slow 3.0" in report.summary(measured)
    assert " 1.00 " in report.summary(measured)  # the geometric mean

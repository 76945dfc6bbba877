"""Functions whose traces multiply run as they are, and say so once."""

import logging

import numpy as np
import pytest

import fdbr
from compiler.comparing import assert_same
from fdbr.compiler.engine import budget
from fdbr.compiler.engine.specializations import STORM

DECISIONS = 12


def winding(x):
    for i in range(DECISIONS):
        x = np.sin(x) if x[i] > 0 else x * 0.5
    return x


def straight(x):
    return np.sin(x) * 2 if x[0] > 0 else x


@pytest.fixture(autouse=True)
def whatever_it_costs():
    """Have everything recorded, whatever calls have earned, but nothing waited for."""
    before = budget.set_patience(1e-12)
    yield
    budget.set_patience(before)


def points(count):
    return list(np.random.default_rng(0).normal(size=(count, 16)))


@pytest.mark.parametrize("form", [lambda f: f, lambda f: fdbr.grad(lambda x: f(x).sum())])
def test_where_nearly_every_call_takes_another_path_few_are_recorded(form, caplog):
    f = form(winding)
    jitted = fdbr.jit(f)
    with caplog.at_level(logging.WARNING, logger="fdbr.jit"):
        for x in points(600):
            assert_same(jitted(x), f(x))
    report = jitted.report()
    assert len(report.traces) < 40
    assert report.eager > 500
    assert "write loops on data with fdbr.while_loop" in str(report)
    assert [record for record in caplog.messages if STORM in record] == [
        f"{report.name} runs without a trace: {STORM}"
    ]


def test_two_paths_are_no_storm():
    jitted = fdbr.jit(straight)
    for x in points(100):
        assert_same(jitted(x), straight(x))
    report = jitted.report()
    assert len(report.traces) == 2
    assert STORM not in str(report)


def test_why_a_function_is_not_recorded_is_said_once(caplog):
    jitted = fdbr.jit(lambda x: x * len(f"{x:.3f}"))
    with caplog.at_level(logging.WARNING, logger="fdbr.jit"):
        for x in range(50):
            jitted(float(x))
    assert 1 <= len(caplog.messages) <= 3
    assert len(set(caplog.messages)) == len(caplog.messages)
    assert "makes text of a traced value" in caplog.text


def test_the_report_says_what_compilation_took_and_what_is_held(tmp_path, monkeypatch):
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    table = np.arange(3000.0)
    jitted = fdbr.jit(lambda x: np.sum(np.sin(x) * table + np.exp(x / 1370)))
    (kept,) = jitted.compile(table).report().traces
    assert kept.compiled
    assert kept.kernels >= 1
    assert kept.seconds > 0
    assert kept.kernel_seconds > 0
    assert kept.code_bytes > 100
    assert kept.memory >= table.nbytes
    text = str(jitted.report())
    assert "kB of machine code" in text or "bytes of machine code" in text
    assert "passes took" in text

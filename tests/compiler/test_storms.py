"""Of many sizes or paths, only those that come again are traced, and the log says so once."""

import logging

import numpy as np
import pytest

import fdbr
from compiler.comparing import assert_same
from fdbr.compiler.engine.specialization import MANY_SIZES, STORM

DECISIONS = 12


def winding(x):
    for i in range(DECISIONS):
        x = np.sin(x) if x[i] > 0 else x * 0.5
    return x


def straight(x):
    return np.sin(x) * 2 if x[0] > 0 else x


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
    assert len(report.traces) < 32
    assert report.eager > 500
    assert "write loops on data with fdbr.while_loop" in str(report)
    assert [record for record in caplog.messages if STORM in record] == [
        f"{report.name} runs without a trace: {STORM}"
    ]


def counting(x):
    n = 0
    while x > 1:
        x, n = x / 2, n + 1
    return x * n


def test_a_path_beyond_the_seventh_is_traced_at_its_second_call():
    jitted = fdbr.jit(counting)
    for exponent in [*range(7), 7, 7, 8, 8, 9, 9, 10, 10]:
        assert jitted(2.0**exponent) == counting(2.0**exponent)
    report = jitted.report()
    assert (len(report.traces), report.eager) == (11, 4)
    assert STORM in str(report)


@pytest.mark.parametrize("form", [lambda f: f, fdbr.grad], ids=["values", "gradients"])
def test_a_size_beyond_the_third_is_traced_at_its_second_call(form, caplog):
    jitted = fdbr.jit(form(lambda x: np.sum(np.sin(x) * x)))
    with caplog.at_level(logging.WARNING, logger="fdbr.jit"):
        for size in range(1, 21):
            jitted(np.ones(size))
    assert (len(jitted.report().traces), jitted.report().eager) == (3, 17)
    assert caplog.messages == [f"{jitted.report().name} runs without a trace: {MANY_SIZES}"]
    jitted(np.ones(20))
    assert len(jitted.report().traces) == 4
    jitted(np.ones((2, 3)))  # other than in size
    assert len(jitted.report().traces) == 5


def test_gradients_from_outside_are_traced_likewise():
    jitted = fdbr.jit(lambda x: np.sum(np.sin(x) * x))
    for size in (1, 2, 3, 4, 5, 4):
        x = np.ones(size)
        assert_same(fdbr.grad(jitted)(x), np.sin(x) + x * np.cos(x), ulps=64)
    assert (len(jitted.report().traces), jitted.report().eager) == (4, 2)


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
    assert kept.kernels >= 1
    assert kept.seconds > 0
    assert kept.kernel_seconds > 0
    assert kept.code_bytes > 100
    assert kept.memory >= table.nbytes
    text = str(jitted.report())
    assert "kB of machine code" in text or "bytes of machine code" in text
    assert "passes took" in text

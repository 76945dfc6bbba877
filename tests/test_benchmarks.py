"""The benchmarks run; how fast is not a matter for tests."""

import importlib

import numpy as np
import pytest

from benchmarks import __main__, peers, report, timing


@pytest.mark.parametrize("name", __main__.WORKLOADS)
def test_a_workload_runs_and_gives_finite_results(name):
    workload = importlib.import_module(f"benchmarks.{name}")
    call = workload.fdbr()
    assert np.isfinite(call()).all()
    assert np.isfinite(call()).all()


def test_repeats_are_interleaved_and_counted():
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    seconds = timing.interleaved(calls, rounds=2)
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    turns = [x for i, x in enumerate(order) if i == 0 or order[i - 1] != x]
    assert turns[-4:] == ["a", "b", "a", "b"]


def test_libraries_that_disagree_are_not_timed():
    class Workload:
        TITLE, RTOL = "made up", 1e-6

    calls = {"fdbr": lambda: np.float64(1.0), "torch": lambda: _Tensor(np.float64(1.1))}
    with pytest.raises(SystemExit, match="made up, call 1: torch gives"):
        report._check_agreement(Workload, calls)


def test_a_step_that_goes_on_from_its_last_state_agrees_with_its_like():
    class Workload:
        TITLE, RTOL = "made up", 1e-6

    ours, theirs = iter([1.0, 0.9, 0.8]), iter([1.0, 0.9, 0.8])
    calls = {
        "fdbr": lambda: np.float64(next(ours)),
        "torch": lambda: _Tensor(np.float64(next(theirs))),
    }
    report._check_agreement(Workload, calls)


class _Tensor:
    """As much of a tensor as the comparison asks for."""

    def __init__(self, value):
        self.value = value

    def detach(self):
        return self

    def numpy(self):
        return self.value


def test_a_library_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setitem(peers.PEERS, "absent", peers.Peer("a_library_that_nobody_has"))
    assert peers.load("absent", threads=2) is None

"""The benchmarks run; how fast is not a matter for tests."""

import importlib
import json

import numpy as np
import pytest

from benchmarks import (
    __main__,
    chart,
    libraries,
    measuring,
    memory,
    report,
    timing,
    worker,
    workloads,
)
from fdbr.core.util import allocation

PLAN = measuring.Plan(("fdbr", "torch", "jax"), rounds=1, memory=False, tiny=True)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(timing, "SHORTEST", 0.0)
    monkeypatch.setattr(timing, "REST", 0.0)


@pytest.mark.parametrize("name", workloads.NAMES)
def test_a_workload_runs_and_gives_finite_results(name):
    workload = workloads.load(name)
    run = libraries.start("fdbr", workload, workload.TINY, threads=2)
    for _ in range(2):
        assert all(np.isfinite(array).all() for array in run.results())


@pytest.mark.parametrize("name", ["mlp", "lstm", "cnn", "transformer", "gpt2", "vgg16", "resnet50"])
def test_training_steps_lower_the_loss(name):
    workload = workloads.load(name)
    run = libraries.start("fdbr", workload, workload.TINY, threads=2)
    losses = [float(run.results()[0]) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("name", workloads.NAMES)
def test_bare_products_run(name):
    workload = workloads.load(name)
    for make in getattr(workload, "PRODUCTS", {}).values():
        make(workload.TINY)()


@pytest.mark.parametrize("curve", workloads.CURVES.values(), ids=workloads.CURVES)
def test_a_curve_changes_a_size_of_its_workload(curve):
    workload = workloads.load(curve.workload)
    for value in curve.values:
        assert getattr(workloads.resized(workload, {curve.field: value}), curve.field) == value


@pytest.mark.slow
def test_the_command_prints_tables_and_writes_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(__main__, "_limit_threads", lambda threads: None)
    monkeypatch.setitem(
        workloads.CURVES, "mlp_batch", workloads.Curve("rosen10", "dimensions", (3,))
    )
    arguments = ["rosen10", "mlp_batch", "--tiny", "--rounds=1", "--no-memory", "--peers="]
    __main__.main([*arguments, f"--output={tmp_path}"])
    printed = capsys.readouterr().out
    assert "rosen10: gradient" in printed
    assert "as ratios to others'" in printed
    document = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [result["workload"] for result in document["workloads"]] == ["rosen10"]
    assert document["curves"]["mlp_batch"][0]["sizes"] == {"dimensions": 3}
    assert document["workloads"][0]["rows"][0]["seconds"][0] > 0
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "benchmarks.png").stat().st_size > 0


def test_the_command_lists_workloads(capsys, monkeypatch):
    monkeypatch.setattr(__main__, "_limit_threads", lambda threads: None)
    __main__.main(["--list"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*workloads.NAMES, *workloads.CURVES))


def test_an_unknown_workload_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(__main__, "_limit_threads", lambda threads: None)
    with pytest.raises(SystemExit):
        __main__.main(["mpl"])
    assert "unknown workload ['mpl']" in capsys.readouterr().err


@pytest.mark.skipif(not memory.known(), reason="the system does not tell")
def test_memory_at_its_peak_is_seen():
    array_size = 1 << 26

    def call():
        return np.ones(array_size, np.uint8).sum()

    allocation.give_back_freed_memory()  # which would be taken again, without a trace
    before = memory.resident()
    assert 0.9 * array_size < memory.peak(call) - before < 2 * array_size
    assert array_size < memory.array_peak(call) < 1.1 * array_size


def test_a_worker_that_dies_is_a_failure_with_a_reason():
    killed = worker.Worker("no such library", "rosen10", {}, threads=2, tiny=True)
    with pytest.raises(worker.FailedError, match="fails: KeyError: 'no such library'"):
        killed.first()
    killed._process.kill()
    with pytest.raises(worker.FailedError, match="its process ended with -9"):
        killed.first()
    killed.end()


def test_repeats_are_interleaved_in_rotating_order():
    order = []

    def loop(name):
        return lambda number: order.append(name) or 1.0

    seconds = timing.interleaved({"a": loop("a"), "b": loop("b")}, rounds=2)
    assert seconds == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert order == ["a", "b", *"aabb", *"bbaa"]  # each turn begins with an untimed call


def test_libraries_that_disagree_are_told_apart():
    ours = [[np.float64(1.0)], [np.float64(0.9)]]
    assert measuring.disagreement(ours, ours, 1e-6) is None
    theirs = [[np.float64(1.0)], [np.float64(0.8)]]
    assert "disagrees with fdbr in call 2: 0.8, not 0.9" in measuring.disagreement(
        theirs, ours, 0.1
    )
    assert "dtypes" in measuring.disagreement([[np.float32(1.0)]], [[np.float64(1.0)]], 0.1)


class Stub:
    """A worker as far as measuring is concerned."""

    def __init__(self, result):
        self._result = result

    def first(self):
        if isinstance(self._result, str):
            raise worker.FailedError(self._result)
        return worker.First([[np.float64(self._result)]], 0.1)

    def loop(self, number):
        return 1e-3 * number


def test_a_library_that_cannot_take_part_is_named_with_its_reason():
    workers = {"fdbr": Stub(1.0), "torch": Stub("fails: not today"), "jax": Stub(2.0)}
    rows = measuring._rows(workloads.load("rosen10"), workers, PLAN)
    assert [row.library for row in rows] == ["fdbr", "torch", "jax"]
    assert rows[0].seconds == [1e-3]
    assert rows[1].reason == "fails: not today"
    assert rows[2].reason.startswith("disagrees with fdbr in call 1: 2, not 1")
    printed = report.table(measuring.Result("made_up", "made up", {}, rows))
    assert "torch: fails: not today" in printed
    assert "jax: disagrees" in printed


def test_reasons_why_a_library_is_absent(monkeypatch):
    monkeypatch.setitem(libraries.LIBRARIES, "absent", libraries.Library("a_library_nobody_has"))
    with pytest.raises(libraries.AbsentError, match="not installed: pip install a_library"):
        libraries.start("absent", workloads.load("mlp"), None, 2)
    assert libraries.version("absent") is None
    with pytest.raises(libraries.AbsentError, match="this version of fdbr has no jit"):
        libraries._fdbr_jit(object(), lambda: None)


def test_ratios_are_to_the_fastest_peer():
    rows = [
        measuring.Row("fdbr", [1e-6, 3e-6, 4e-6]),
        measuring.Row("torch", [2e-6, 2e-6, 9e-6]),
        measuring.Row("jax", [4e-6, 1e-6, 4e-6]),
        measuring.Row("products", [1e-6]),
    ]
    result = measuring.Result("made_up", "made up", {}, rows)
    assert report.best_peer(result) == 2e-6
    assert report.best_peer(result, least=True) == 1e-6
    assert "1.50 (1.00)  1.50 (0.50)" in report.ratio_table([result])


def test_without_matplotlib_there_is_no_chart(tmp_path, monkeypatch):
    monkeypatch.setattr(chart.importlib.util, "find_spec", lambda name: None)
    assert not chart.draw(tmp_path / "chart.png", [], {})


def test_the_loops_own_time_is_measured(capsys):
    __main__.main(["loop", "--iterations", "3", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert "fit alone" in printed
    assert "five stages" in printed

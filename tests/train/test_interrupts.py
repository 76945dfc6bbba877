"""Ctrl-C ends a run after its iteration."""

import signal
import threading

import numpy as np
import pytest

from fdbr import train

BATCHES = train.Batches(np.arange(20.0), 1)


def pressing(*iterations):
    """A step during which Ctrl-C is pressed."""

    def step(state, batch):
        if state + 1 in iterations:
            signal.raise_signal(signal.SIGINT)
        return state + 1, {"loss": float(state)}

    return step


@pytest.fixture(autouse=True)
def usual_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_the_iteration_is_finished_and_its_report_is_the_last(capfd):
    reports = list(train.fit(pressing(3), 0, BATCHES, epochs=2))
    assert [r.iteration for r in reports] == [1, 2, 3]
    assert reports[-1].state == 3
    assert reports[-1].total == 40
    assert "interrupted; the run ends after this iteration" in capfd.readouterr().err
    rest = train.fit(pressing(), 0, BATCHES, epochs=2, resume=reports[-1])
    assert len(list(rest)) == 37


def test_stages_see_the_last_report_and_the_end():
    seen = []

    def noting(reports):
        for report in reports:
            seen.append(report.iteration)
            if report.iteration == 2:
                signal.raise_signal(signal.SIGINT)
            yield report
        seen.append("end")

    assert len(list(train.pipe(train.fit(pressing(), 0, BATCHES, epochs=1), noting))) == 2
    assert seen == [1, 2, "end"]


def test_a_second_time_interrupts_at_once():
    reports = train.fit(pressing(2), 0, BATCHES, epochs=1)
    next(reports)
    next(reports)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    reports.close()


@pytest.mark.parametrize("end", ["whole", "closed", "dropped", "failed"])
def test_the_usual_handler_is_back_after_the_run(end):
    def failing(state, batch):
        raise ZeroDivisionError

    reports = train.fit(failing if end == "failed" else pressing(), 0, BATCHES, epochs=1)
    if end == "whole":
        list(reports)
    elif end == "failed":
        with pytest.raises(ZeroDivisionError):
            next(reports)
    else:
        next(reports)
        if end == "closed":
            reports.close()
    del reports
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_run_within_the_step_of_another_is_finished():
    def step(state, batch):
        inner = list(train.fit(pressing(*([4] if state == 1 else [])), 0, BATCHES, epochs=1))
        return state + 1, {"inner": inner[-1].state}

    reports = list(train.fit(step, 0, BATCHES, epochs=1))
    assert [r.metrics["inner"] for r in reports] == [20, 20]


def test_runs_read_in_iterations_leave_the_usual_handler_behind():
    one, other = (train.fit(pressing(), 0, BATCHES, epochs=1) for _ in range(2))
    next(one), next(other)
    one.close()
    signal.raise_signal(signal.SIGINT)
    assert len(list(other)) == 0


def test_a_handler_of_somebody_else_stays():
    caught = []
    signal.signal(signal.SIGINT, lambda *args: caught.append(1))
    assert len(list(train.fit(pressing(2), 0, BATCHES, epochs=1))) == 20
    assert caught == [1]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_run_in_another_thread_handles_nothing():
    found = []

    def run():
        reports = train.fit(pressing(), 0, BATCHES, epochs=1)
        next(reports)
        found.append(signal.getsignal(signal.SIGINT))
        found.append(len(list(reports)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler, 19]

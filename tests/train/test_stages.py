"""Stages of a stream of reports."""

import io
import json
import math

import numpy as np
import pytest

from fdbr import train


class Stream:
    """An iterator of reports that knows whether it was closed."""

    def __init__(self, values, name="loss"):
        self.reports = iter(
            train.Report(i, i // 2, {name: value}, 10.0 * i, train.Position(i // 2, i % 2), 0.1, 8)
            for i, value in enumerate(values, 1)
        )
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.reports)

    def close(self):
        self.closed = True


def metrics(reports):
    return [dict(report.metrics) for report in reports]


def all_stages(folder):
    return {
        "evaluate": train.evaluate(lambda state: {"state": state}),
        "average": train.average(),
        "log": train.log(folder / "log.jsonl"),
        "progress": train.progress(),
    }


NAMES = ["evaluate", "average", "log", "progress"]


# --- pipe ---------------------------------------------------------------------------


def test_reports_go_through_the_stages_in_order():
    def noting(name):
        return lambda reports: (
            train.Report(r.iteration, r.epoch, {**r.metrics, name: len(r.metrics)}, None,
                         r.position, r.seconds)
            for r in reports
        )  # fmt: skip

    out = train.pipe(Stream([0.5]), noting("a"), noting("b"))
    assert metrics(out) == [{"loss": 0.5, "a": 1, "b": 2}]


def test_a_pipe_without_stages_gives_the_reports_themselves():
    reports = list(Stream([1.0, 2.0]))
    assert list(train.pipe(reports)) == reports


def test_a_stage_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="stage 1 must be a function from reports to reports"):
        train.pipe(Stream([]), train.average(), "log")


@pytest.mark.parametrize("name", NAMES)
def test_closing_a_stage_closes_what_it_reads_from(name, tmp_path):
    stream = Stream([1.0, 2.0, 3.0])
    out = train.pipe(stream, all_stages(tmp_path)[name])
    next(out)
    assert not stream.closed
    out.close()
    assert stream.closed


def test_closing_the_last_stage_closes_them_all(tmp_path):
    stream = Stream([1.0, 2.0, 3.0])
    out = train.pipe(stream, *all_stages(tmp_path).values())
    next(out)
    out.close()
    assert stream.closed


@pytest.mark.parametrize("name", NAMES)
def test_an_error_comes_through_as_it_is(name, tmp_path):
    def failing():
        yield next(Stream([1.0]))
        raise ZeroDivisionError("upstream")

    with pytest.raises(ZeroDivisionError, match="upstream"):
        list(train.pipe(failing(), all_stages(tmp_path)[name]))


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_is_lazy_and_lets_every_report_through(name, tmp_path):
    stream = Stream([1.0, 2.0, 3.0])
    out = train.pipe(stream, all_stages(tmp_path)[name])
    assert next(out).iteration == 1
    assert next(stream).iteration == 2
    assert [report.iteration for report in out] == [3]


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_may_serve_several_runs(name, tmp_path):
    stage = all_stages(tmp_path)[name]
    one, other = (metrics(train.pipe(Stream([1.0, 3.0]), stage)) for _ in range(2))
    assert one == other


# --- evaluate -----------------------------------------------------------------------


def test_evaluation_adds_metrics_of_the_state_when_triggered():
    stage = train.evaluate(lambda state: {"half": state / 2})
    assert metrics(train.pipe(Stream([0.1, 0.2]), stage)) == [
        {"loss": 0.1},
        {"loss": 0.2, "test/half": 10.0},
    ]


def test_evaluation_has_its_own_trigger_and_prefix():
    stage = train.evaluate(lambda state: {"s": 1}, every=train.every(iterations=1), prefix="")
    assert metrics(train.pipe(Stream([0.1]), stage)) == [{"loss": 0.1, "s": 1}]


def test_evaluation_does_not_overwrite_metrics():
    stage = train.evaluate(lambda state: {"loss": 1}, prefix="")
    with pytest.raises(ValueError, match="evaluate: loss would stand twice"):
        list(train.pipe(Stream([0.1, 0.2]), stage))


# --- average ------------------------------------------------------------------------


def test_the_mean_is_taken_since_the_last_one():
    seen = metrics(train.pipe(Stream([1.0, 3.0, 10.0, 20.0]), train.average()))
    assert [m["loss"] for m in seen] == [1.0, 2.0, 10.0, 15.0]


def test_the_mean_of_small_numbers_is_taken_in_double_precision():
    values = [np.float32(0.1)] * 3
    out = train.pipe(Stream(values), train.average(every=train.every(iterations=3)))
    assert metrics(out)[-1]["loss"] == pytest.approx(float(np.float32(0.1)), abs=1e-15)


def test_a_metric_that_comes_at_times_is_averaged_over_those():
    reports = [next(Stream([1.0])), list(Stream([0.0, 3.0], "rare"))[1]]
    assert metrics(train.pipe(reports, train.average()))[-1] == {"loss": 1.0, "rare": 3.0}


def test_a_metric_that_is_no_number_is_named():
    with pytest.raises(TypeError, match=r"metric 'loss' must be a single number, got float64\[3\]"):
        list(train.pipe(Stream([1.0, np.zeros(3)]), train.average()))


# --- log ----------------------------------------------------------------------------


def test_each_line_of_the_log_is_an_object(tmp_path):
    path = tmp_path / "deep" / "log.jsonl"
    list(train.pipe(Stream([0.5, np.float32(0.25), 1, np.array(2.0)]), train.log(path)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"iteration": 2, "epoch": 1, "seconds": 0.1, "loss": 0.25},
        {"iteration": 4, "epoch": 2, "seconds": 0.1, "loss": 2.0},
    ]


def test_the_log_is_written_line_by_line_and_appended_to(tmp_path):
    path = tmp_path / "log.jsonl"
    for round_ in (1, 2):
        out = train.pipe(Stream([0.5]), train.log(path, every=train.every(iterations=1)))
        next(out)
        assert len(path.read_text().splitlines()) == round_
        out.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_json_has_no_number_for_is_null(tmp_path, value):
    path = tmp_path / "log.jsonl"
    list(train.pipe(Stream([0.0, value]), train.log(path)))

    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(path.read_text(), parse_constant=refuse)["loss"] is None


def test_a_metric_with_the_name_of_another_entry_is_refused(tmp_path):
    with pytest.raises(ValueError, match="log: epoch would stand twice"):
        list(train.pipe(Stream([1.0, 1.0], "epoch"), train.log(tmp_path / "log.jsonl")))


# --- progress -----------------------------------------------------------------------


def test_progress_prints_one_line_an_epoch_and_no_bar_where_there_is_no_terminal(capsys):
    list(train.pipe(Stream([0.5, 0.25, math.nan, 1e-9]), train.progress()))
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines() == [
        "epoch 1  iteration 2  loss 0.25  0.1 s",
        "epoch 2  iteration 4  loss 1e-09  0.1 s",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_a_bar_on_a_terminal(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    list(train.pipe(Stream([0.5] * 8), train.progress()))
    assert "/8 [" in terminal.getvalue()
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_progress_takes_its_bar_away_when_it_is_closed(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    out = train.pipe(Stream([1.0, 2.0]), train.progress())
    next(out)
    assert not terminal.getvalue().endswith("\r")
    out.close()
    assert terminal.getvalue().endswith("\r")

"""Stages of a stream of reports."""

import csv
import errno
import io
import itertools
import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest

import fdbr
from fdbr import train

EACH = train.every(iterations=1)


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
        "micro_average": train.micro_average("twice", "loss", "loss", every=EACH),
        "log": train.log(folder / "log.jsonl"),
        "progress": train.progress(),
        "table": train.table(),
        "until": train.until(lambda report: False),
        "observe": train.observe("rate", lambda report: 0.1),
        "check_finite": train.check_finite(),
        "parameter_statistics": train.parameter_statistics(),
        "tensorboard": train.tensorboard(folder / "events"),
        "plot": train.plot(folder / "curves.svg"),
        "plot_statistics": train.plot_statistics(folder / "statistics.svg", lambda state: state),
        "stateful": train.stateful(lambda state, report: (state + 1, report), 0, name="count"),
    }


NAMES = list(all_stages(Path()))


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


def test_an_evaluation_over_batches_weighs_them_by_their_examples():
    batches = train.Batches(np.arange(5.0), 2)
    stage = train.evaluate(lambda state, b: {"m": b.mean() * state, "f": 2.0}, batches=batches)
    assert metrics(train.pipe(Stream([0.1, 0.2]), stage))[1] == {
        "loss": 0.2,
        "test/m": 40.0,
        "test/f": 2.0,
    }
    with pytest.raises(TypeError, match="batches must be such as can be read again"):
        train.evaluate(lambda state, b: {}, batches=iter([1.0]))
    with pytest.raises(TypeError, match="metrics_of_state must return a mapping"):
        list(train.pipe(Stream([0.1, 0.2]), train.evaluate(lambda state: 0.5)))


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


def test_a_micro_average_is_of_sums():
    def with_counts(reports):
        counts = iter([(1, 1), (0, 4), (3, 4), (1, 4)])
        for report in reports:
            right, found = next(counts)
            yield report.with_metrics({"right": right, "found": np.float32(found)})

    stages = with_counts, train.micro_average("precision", "right", "found"), train.average()
    out = metrics(train.pipe(Stream([0.5] * 4), *stages))
    assert [m.get("precision") for m in out] == [None, 0.2, None, 0.5]
    with pytest.raises(
        ValueError, match="no report up to iteration 2 had the metric 'right'; this"
    ):
        list(train.pipe(Stream([0.5] * 4), train.micro_average("p", "right", "found")))


# --- log ----------------------------------------------------------------------------


def test_each_line_of_the_log_is_an_object(tmp_path):
    path = tmp_path / "deep" / "log.jsonl"
    list(train.pipe(Stream([0.5, np.float32(0.25), 1, np.array(2.0)]), train.log(path)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"iteration": 2, "epoch": 1, "seconds": 0.1, "loss": 0.25},
        {"iteration": 4, "epoch": 2, "seconds": 0.1, "loss": 2.0},
    ]


def test_the_log_is_written_line_by_line(tmp_path):
    path = tmp_path / "log.jsonl"
    out = train.pipe(Stream([0.5, 0.25]), train.log(path, every=EACH))
    for count in (1, 2):
        next(out)
        assert len(path.read_text().splitlines()) == count


@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_a_run_that_begins_anew_keeps_the_file_of_the_one_before(tmp_path, end):
    path = tmp_path / f"log.{end}"
    list(train.pipe(Stream([0.5] * 4), train.log(path)))
    before = path.read_text()
    list(train.pipe(Stream([0.5] * 2), train.log(path)))
    assert len(path.read_text()) < len(before)
    assert (tmp_path / f"log.{end}~").read_text() == before


@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_lines_from_the_resumed_iteration_on_are_cut(tmp_path, end):
    path = tmp_path / f"log.{end}"
    stage = train.log(path, every=EACH)
    list(train.pipe(Stream([0.5] * 5), stage))
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[-1][:9])  # killed within a line
    list(train.pipe(itertools.islice(Stream([0.5] * 5), 3, None), stage))
    assert path.read_text() == whole
    list(train.pipe(itertools.islice(Stream([0.5] * 9), 7, None), stage))
    assert path.read_text().startswith(whole)


@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_a_file_that_is_no_log_is_left_alone(tmp_path, end):
    path = tmp_path / f"notes.{end}"
    path.write_text("my notes\n")
    with pytest.raises(ValueError, match=r"log: .*notes.* holds something else than a log"):
        list(train.pipe(itertools.islice(Stream([0.5] * 5), 3, None), train.log(path)))
    assert path.read_text() == "my notes\n"


def test_a_table_grows_columns_for_metrics_that_come_later(tmp_path):
    path = tmp_path / "log.csv"
    evaluated = train.evaluate(lambda state: {"a,b": state, "nan": math.nan})
    list(train.pipe(Stream([0.5, np.float32(0.25), 1e-9]), evaluated, train.log(path, every=EACH)))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["loss"] for row in rows] == ["0.5", "0.25", "1e-09"]
    assert [row["test/a,b"] for row in rows] == ["", "20.0", ""]
    assert [row["test/nan"] for row in rows] == ["", "nan", ""]
    assert list(rows[0])[:3] == ["iteration", "epoch", "seconds"]


def test_a_log_that_cannot_be_written_says_which_and_why(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"fdbr\.train\.log: .*log\.jsonl cannot be written"):
        list(train.pipe(Stream([0.5]), train.log(tmp_path / "file" / "log.jsonl")))
    if Path("/dev/full").exists():
        (tmp_path / "log.jsonl").symlink_to("/dev/full")
        with pytest.raises(OSError, match=r"log\.jsonl cannot be written: No space left") as caught:
            list(train.pipe(Stream([0.5, 0.5]), train.log(tmp_path / "log.jsonl")))
        assert caught.value.errno == errno.ENOSPC


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


@pytest.mark.parametrize("last", ["table", "progress"])
def test_progress_beside_a_table_prints_no_second_line_and_shows_the_loss(
    monkeypatch, capsys, last
):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    stages = [train.progress(), train.table(["loss"])]
    stages = stages if last == "table" else stages[::-1]
    list(train.pipe(Stream([0.5, 0.25]), *stages))
    assert capsys.readouterr().out.split() == ["loss", "0.25"]
    assert "loss 0.5" in terminal.getvalue()
    every = train.every(epochs=1)  # asked for, there are lines all the same
    list(train.pipe(Stream([0.5, 0.25]), train.progress(every), train.table(["loss"])))
    assert "  loss 0.25  " in capsys.readouterr().out


def test_progress_takes_its_bar_away_when_it_is_closed(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    out = train.pipe(Stream([1.0, 2.0]), train.progress())
    next(out)
    assert not terminal.getvalue().endswith("\r")
    out.close()
    assert terminal.getvalue().endswith("\r")


def test_progress_tells_the_rate_and_the_time_that_is_left(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    for _ in train.pipe(Stream([0.5] * 8), train.progress(every=lambda report: False)):
        time.sleep(0.03)
    assert re.search(r"[1-7]/8 \[[^\r]*<00:0\d, [^\r]*it/s\]", terminal.getvalue())


# --- table --------------------------------------------------------------------------


def test_a_table_has_a_new_header_for_new_metrics(capsys):
    stages = train.evaluate(lambda state: {"x": 1.0}), train.table(every=EACH)
    list(train.pipe(Stream([0.5, math.nan, 0.1234567]), *stages))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["epoch", "iteration", "seconds", "loss"],
        ["0", "1", "0.1", "0.5"],
        ["epoch", "iteration", "seconds", "loss", "test/x"],
        ["1", "2", "0.1", "nan", "1"],
        ["1", "3", "0.1", "0.123457"],
    ]


def test_a_column_that_never_comes_is_an_error_at_the_end(capsys):
    stage = train.table(["epoch", "loss", "test/loss"])
    with pytest.raises(
        ValueError, match=r"table: .*none of the .* metric 'test/loss'; they had 'l"
    ):
        list(train.pipe(Stream([0.5] * 8), stage))
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert len(list(train.pipe(Stream([0.5] * 4), stage))) == 4  # of 8: it was ended before
    with pytest.raises(TypeError, match="columns must be a sequence of names, not str"):
        train.table("loss")


# --- stages that keep something -----------------------------------------------------


def test_two_stages_of_one_name_are_refused():
    twice = train.average(), train.average(every=EACH)
    with pytest.raises(ValueError, match="two stages keep their state under the name 'average'"):
        list(train.pipe(Stream([0.5]), *twice))
    renamed = train.average(), train.average(every=EACH, name="other")
    (report,) = train.pipe(Stream([0.5]), *renamed)
    assert set(report.position.kept) == {"average", "other"}
    once = train.once(train.every(iterations=2))
    for one, other in ((train.best("loss", every=EACH), once), (once, train.best("loss"))):
        pair = train.observe("x", lambda r: 1, one), train.observe("x", lambda r: 1, other)
        with pytest.raises(ValueError, match="two stages keep their state under the name 'observe"):
            list(train.pipe(Stream([0.5]), *pair))


def test_no_stage_keeps_anything_behind_one_that_saves_reports():
    def saving(reports):
        return (report.seal("saving") for report in reports)

    assert len(list(train.pipe(Stream([0.5]), train.average(), saving, train.progress()))) == 1
    with pytest.raises(ValueError, match="'average' keeps a state, but it stands after saving"):
        list(train.pipe(Stream([0.5]), saving, train.average()))


def test_what_a_stateful_stage_returns_is_checked():
    with pytest.raises(TypeError, match=r"update of 'x' must return \(state, report\), not float"):
        list(train.pipe(Stream([0.5]), train.stateful(lambda s, r: 0.5, name="x")))


def test_means_weigh_batches_by_their_examples():
    batches = train.Batches(np.arange(5.0), 2)  # the last has one example
    reports = train.fit(lambda s, b: (s, {"mean": b.mean()}), 0, batches, epochs=1)
    assert list(train.pipe(reports, train.average()))[-1].metrics["mean"] == 2.0


# --- until --------------------------------------------------------------------------


def test_a_stage_may_end_a_run_by_what_it_sees():
    stages = (
        train.evaluate(lambda state: {"x": state}),
        train.until(train.early_stopping("test/x", patience=1)),
    )
    stream = Stream([0.5] * 8)
    assert [r.iteration for r in train.pipe(stream, *stages)] == [1, 2, 3, 4]
    assert stream.closed


# --- check_finite -------------------------------------------------------------------


def test_what_is_not_finite_is_named():
    model = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 2)
    weight = np.where(np.eye(2) == 1, np.inf, model.weight)
    state = (fdbr.tree.replace(model, weight=weight), math.inf, np.array(np.inf))
    report = train.Report(3, 1, {"loss": math.nan, "a": 1.0}, state, train.Position(1, 0), 0.1)
    with pytest.raises(FloatingPointError) as caught:
        next(train.check_finite()(iter([report])))
    wrong = "the metric 'loss' is nan; the state has infinity at [0].weight (2 of 4)"
    assert f"after iteration 3, {wrong}; run the step" in str(caught.value)
    assert "[1]" not in str(caught.value)
    with pytest.raises(FloatingPointError, match="'loss' is nan; run the step"):
        next(train.check_finite(of=None)(iter([report])))


def test_a_run_whose_numbers_are_finite_goes_on():
    assert len(list(train.pipe(Stream([0.5] * 3), train.check_finite()))) == 3


# --- statistics ---------------------------------------------------------------------


def test_statistics_are_those_of_numpy_eager_and_jitted(xp, to_numpy):
    w = np.random.default_rng(0).normal(size=(3, 5))
    w[0, :2] = 0
    values = {"w": xp.asarray(w), "n": 3, "none": xp.asarray(np.zeros(0))}
    for function in (train.statistics, fdbr.jit(lambda v, *a: train.statistics(v, "", (25, 50)))):
        found = function(values, "", (25, 50))
        named = {name.rpartition("/")[2]: float(value) for name, value in found.items()}
        assert named == pytest.approx(
            {
                "mean": w.mean(), "std": w.std(), "min": w.min(), "max": w.max(),
                "norm": np.linalg.norm(w), "zeros": 2 / 15,
                "p25": np.percentile(w, 25), "p50": np.median(w),
            }
        )  # fmt: skip


def test_statistics_of_parameters_are_metrics():
    stage = train.parameter_statistics(lambda state: np.full(3, state), percentiles=[50])
    out = metrics(train.pipe(Stream([0.5, 0.5]), stage))
    assert out[0] == {"loss": 0.5}
    assert out[1]["params/mean"] == out[1]["params/p50"] == 20.0
    with pytest.raises(ValueError, match="percentiles lie between 0 and 100, got 101"):
        train.parameter_statistics(percentiles=[101])


# --- observe, tensorboard, draw_tape ------------------------------------------------


def test_any_value_is_observed():
    stage = train.observe("rate", lambda report: 1 / report.iteration, every=train.at(iterations=2))
    assert metrics(train.pipe(Stream([0.5] * 3), stage))[1:] == [
        {"loss": 0.5, "rate": 0.5},
        {"loss": 0.5},
    ]
    with pytest.raises(ValueError, match="observe: loss would stand twice"):
        list(train.pipe(Stream([0.5] * 3), train.observe("loss", lambda report: 1)))


def test_events_are_read_back_as_they_were(tmp_path):
    from tensorboardX.proto.event_pb2 import Event  # it is one of the tests' requirements

    stage = train.tensorboard(tmp_path, every=EACH)
    list(train.pipe(Stream([0.5, 0.25]), stage))
    list(train.pipe(itertools.islice(Stream([0.5, 0.25]), 1, None), stage))
    found, starts = [], []
    for path in sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")
            event = Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]
            found += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
            starts += [event.step] if event.HasField("session_log") else []
    assert sorted(found) == [(1, "loss", 0.5), (2, "loss", 0.25), (2, "loss", 0.25)]
    assert sorted(starts) == [1, 2]


def test_the_tape_is_drawn_once(tmp_path):
    path = tmp_path / "deep" / "tape.dot"
    calls = []

    def loss(state):
        calls.append(1)
        return fdbr.ops.exp(state)

    list(train.pipe(Stream([0.5] * 3), train.draw_tape(path, loss)))
    assert len(calls) == 1
    assert "exp" in path.read_text()
    list(train.pipe(Stream([0.5]), train.draw_tape(path, lambda s: fdbr.debug.draw(np.sin, s))))
    assert "sin" in path.read_text()


# --- plots --------------------------------------------------------------------------


def test_curves_of_one_kind_share_their_axes_and_are_drawn_anew(tmp_path):
    path = tmp_path / "deep" / "curves.svg"
    stages = train.evaluate(lambda state: {"loss": 1 / state, "accuracy": 0.5}), train.plot(path)
    seen = []
    for report in train.pipe(Stream([0.5, math.nan, 0.25, 0.125]), *stages):
        if report.iteration % 2 == 0:
            seen.append(path.read_text())
            kept = report.position.kept["plot"]
    text = path.read_text()
    assert text != seen[0]  # the last point is drawn in the end, if not before
    assert text.count('<g id="axes_') == 2
    assert kept["test/loss"]["x"].tolist() == [2, 4]
    assert kept["loss"]["y"].tolist()[1] == 0.125
    assert list(path.parent.iterdir()) == [path]


def test_a_curve_that_never_comes_is_an_error_at_the_end(tmp_path):
    stage = train.plot(tmp_path / "curves.svg", ["test/loss"])
    with pytest.raises(
        ValueError, match=r"plot: .*none of the reports .* metric 'test/loss'; they had 'loss'"
    ):
        list(train.pipe(Stream([0.5] * 8), stage))
    with pytest.raises(ValueError, match="has no suffix of a picture; give one of "):
        train.plot(tmp_path / "curves.txt")


def test_the_distribution_of_numbers_is_drawn(tmp_path):
    path = tmp_path / "weights.svg"
    of = lambda state: {"a": np.arange(4.0) * state, "b": np.ones((2, 2)), "n": 3}
    reports = list(train.pipe(Stream([0.5] * 4), train.plot_statistics(path, of)))
    kept = reports[-1].position.kept["plot_statistics"]
    assert kept["['a']/p50"]["y"].tolist() == [30.0, 60.0]
    assert path.read_text().count('<g id="axes_') == 2
    with pytest.raises(ValueError, match="of gave 0 arrays with numbers to draw"):
        list(train.pipe(Stream([0.5] * 4), train.plot_statistics(path, lambda state: 3)))

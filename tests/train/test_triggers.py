"""Predicates on reports."""

import json
import pickle

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr import train


def report(iteration, epoch, batch):
    return train.Report(iteration, epoch, {}, None, train.Position(epoch, batch), 0.0)


def test_every_epoch_is_true_of_the_last_report_of_each():
    trigger = train.every(epochs=1)
    seen = [trigger(report(i, i // 3, i % 3)) for i in range(1, 7)]
    assert seen == [False, False, True, False, False, True]


def test_every_second_epoch_leaves_out_the_odd_ones():
    trigger = train.every(epochs=2)
    assert [trigger(report(e, e, 0)) for e in range(1, 5)] == [False, True, False, True]


def test_every_so_many_iterations_counts_iterations_only():
    trigger = train.every(iterations=3)
    assert [i for i in range(1, 10) if trigger(report(i, 0, i))] == [3, 6, 9]


def test_either_of_both_suffices():
    trigger = train.every(epochs=1, iterations=4)
    assert [i for i in range(1, 10) if trigger(report(i, i // 3, i % 3))] == [3, 4, 6, 8, 9]


def test_a_trigger_has_no_state():
    trigger = train.every(iterations=2)
    assert [trigger(report(2, 0, 2)) for _ in range(3)] == [True, True, True]


def test_one_of_both_is_needed():
    with pytest.raises(TypeError, match="give epochs, iterations, or both"):
        train.every()


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (0, ValueError, "at least 1, got 0"),
        (-1, ValueError, "at least 1, got -1"),
        (1.5, TypeError, "an integer, got float 1.5"),
        ("2", TypeError, "an integer, got str"),
    ],
)
@pytest.mark.parametrize("name", ["epochs", "iterations"])
def test_intervals_are_positive_integers(name, number, error, words):
    with pytest.raises(error, match=f"train.every: {name} must be {words}"):
        train.every(**{name: number})


# --- combinations -------------------------------------------------------------------


def stream(losses, name="loss", seconds=1.0):
    return [
        train.Report(i, i // 2, {name: loss}, None, train.Position(i // 2, i % 2), seconds * i)
        for i, loss in enumerate(losses, 1)
    ]


def fired(trigger, reports):
    return [report.iteration for report, fires in train.due(iter(reports), trigger) if fires]


EACH = train.every(iterations=1)


def test_triggers_are_combined_with_each_other_and_with_functions():
    two, three = train.every(iterations=2), train.every(iterations=3)
    reports = stream([1.0] * 6)
    assert fired(two & three, reports) == [6]
    assert fired(two | three, reports) == [2, 3, 4, 6]
    assert fired(~two, reports) == [1, 3, 5]
    assert fired(~(two | three) | (lambda report: report.iteration == 2), reports) == [1, 2, 5]
    assert fired((lambda report: report.iteration > 3) & two, reports) == [4, 6]
    assert repr(~(two & three)) == "~(every(iterations=2) & every(iterations=3))"
    with pytest.raises(TypeError, match="what & joins must be a trigger"):
        two & 3


def test_each_part_of_a_combination_sees_every_report():
    best = train.best("loss", every=EACH)
    reports = stream([3.0, 1.0, 2.0, 0.5])
    assert fired(best, reports) == [1, 2, 4]
    assert fired(best & train.every(iterations=3), reports) == []
    assert fired(train.every(iterations=4) & best, reports) == [4]
    assert fired(~best, reports) == [3]
    assert fired(train.once(best) | train.at(iterations=[3]), reports) == [1, 3]


def test_a_trigger_with_a_state_is_not_called_with_one_report():
    with pytest.raises(TypeError, match=r"depends on earlier reports .* train\.due"):
        train.best("loss")(stream([1.0])[0])


# --- the others ---------------------------------------------------------------------


def test_a_schedule_names_iterations_and_epochs():
    assert fired(train.at(iterations=[1, 4], epochs=3), stream([1.0] * 7)) == [1, 4, 6]
    with pytest.raises(TypeError, match="give epochs, iterations, or both"):
        train.at()
    with pytest.raises(TypeError, match="iterations must be an integer"):
        train.at(iterations=[1.5])


def test_a_time_limit_holds_from_then_on():
    assert fired(train.within(seconds=3), stream([1.0] * 5)) == [3, 4, 5]
    assert fired(train.within(hours=1), stream([1.0] * 3, seconds=1800.0)) == [2, 3]
    with pytest.raises(ValueError, match="minutes must be at least 0, got -1"):
        train.within(minutes=-1)


def test_a_period_of_time_fires_at_the_first_report_after_it():
    assert fired(train.every(seconds=2.5), stream([1.0] * 8)) == [3, 5, 8]
    assert fired(train.every(minutes=1), stream([1.0] * 4, seconds=100.0)) == [1, 2, 3, 4]
    assert fired(train.every(seconds=2.5, iterations=4), stream([1.0] * 8)) == [3, 4, 5, 8]
    with pytest.raises(ValueError, match="hours must be positive, got 0"):
        train.every(hours=0)


def test_better_is_less_or_more_and_never_nan():
    losses = [float("nan"), 3.0, float("nan"), 3.0, 2.0, 4.0]
    assert fired(train.best("loss", every=EACH), stream(losses)) == [2, 5]
    assert fired(train.best("loss", mode="max", every=EACH), stream(losses)) == [2, 6]
    assert fired(train.best("loss"), stream(losses)) == [2, 6][:1]


def test_patience_counts_what_is_no_better():
    losses = [3.0, 2.0, 1.95, float("nan"), 1.9, 1.0, 2.0, 2.0]
    stopping = lambda **given: train.early_stopping("loss", every=EACH, **given)
    assert fired(stopping(patience=1), stream(losses)) == [4, 7, 8]
    assert fired(stopping(patience=3, min_delta=0.5), stream(losses)) == [5]
    assert fired(stopping(patience=2, mode="max"), stream(losses)) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("make", [train.best, train.early_stopping])
def test_a_metric_that_does_not_come_is_an_error_that_names_those_there_are(make):
    message = rf"{make.__name__}: there is no metric 'test/loss' in the report of iteration 2, but"
    with pytest.raises(ValueError, match=message + r" 'loss'; put .*every=…"):
        fired(make("test/loss"), stream([1.0, 2.0]))
    with pytest.raises(TypeError, match="metric 'loss' must be a single number, got str"):
        fired(make("loss"), stream(["a", "a"]))
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got less"):
        make("loss", mode="less")


TRIGGERS = {
    "period": train.every(seconds=2.5),
    "once": train.once(train.every(iterations=3)),
    "best": train.best("loss", every=EACH),
    "stopping": train.early_stopping("loss", patience=2, every=EACH),
    "all": (train.every(seconds=2) & ~train.best("loss")) | train.once(),
}


@pytest.mark.parametrize("name", TRIGGERS)
@given(losses=st.lists(st.floats(), min_size=1, max_size=8), cut=st.integers(1, 8))
@settings(max_examples=30)
def test_a_trigger_goes_on_from_what_it_kept(name, losses, cut):
    trigger, reports = TRIGGERS[name], stream(losses)
    whole = list(train.due(iter(reports), trigger, name="it"))
    if cut >= len(reports):
        return
    first, *others = reports[cut:]
    kept = json.loads(json.dumps(whole[cut - 1][0].position.kept["it/trigger"]))
    position = train.Position(first.position.epoch, first.position.batch, {"it/trigger": kept})
    resumed = attrs.evolve(first, position=position)
    rest = list(train.due(iter([resumed, *others]), trigger, name="it"))
    assert [fires for _, fires in rest] == [fires for _, fires in whole[cut:]]


@pytest.mark.parametrize("trigger", [train.every(epochs=2), train.at(iterations=[2, 3])])
def test_a_trigger_without_a_state_goes_to_other_processes(trigger):
    copy = pickle.loads(pickle.dumps(trigger))
    for i in range(1, 6):
        report = train.Report(i, i, {}, None, train.Position(i, 0), 0.1)
        assert copy(report) == trigger(report)

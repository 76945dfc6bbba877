"""The training loop."""

import copy
import itertools
import pickle
import time

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import nn, ops, random, train

DATA = np.arange(10.0)


def step(state, batch):
    """A state that depends on every batch and on their order."""
    return 0.5 * state + batch.sum(), {"sum": batch.sum()}


def batches(size=3):
    return train.Batches(DATA, size, key=random.key(0))


def test_a_report_comes_after_every_step():
    reports = list(train.fit(step, 0.0, batches(), epochs=2))
    assert [r.iteration for r in reports] == list(range(1, 9))
    assert [r.epoch for r in reports] == [0, 0, 0, 1, 1, 1, 1, 2]
    assert [r.position.batch for r in reports] == [1, 2, 3, 0, 1, 2, 3, 0]
    assert {r.total for r in reports} == {8}
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(reports))


def test_the_state_is_threaded_through_the_steps():
    state = 0.0
    expected = []
    for epoch in range(2):
        for batch in batches().epoch(epoch):
            state, _ = step(state, batch)
            expected.append(state)
    assert [r.state for r in train.fit(step, 0.0, batches(), epochs=2)] == expected


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 20))
@settings(max_examples=30)
def test_a_resumed_run_makes_the_reports_that_were_left(size, epochs, stop):
    whole = list(train.fit(step, 0.0, batches(size), epochs=epochs))
    first = whole[:stop]
    if stop > len(whole):
        return
    last = first[-1]
    rest = train.fit(
        step,
        last.state,
        batches(size),
        epochs=epochs,
        position=last.position,
        iteration=last.iteration,
    )
    seen = [attrs.evolve(report, seconds=0.0) for report in rest]
    assert seen == [attrs.evolve(report, seconds=0.0) for report in whole[stop:]]


@given(st.integers(0, 12))
def test_a_run_can_end_after_so_many_iterations(count):
    reports = list(train.fit(step, 0.0, batches(), iterations=count))
    assert [r.iteration for r in reports] == list(range(1, count + 1))


def test_the_first_end_counts_when_there_are_two():
    assert len(list(train.fit(step, 0.0, batches(), epochs=1, iterations=100))) == 4
    assert len(list(train.fit(step, 0.0, batches(), epochs=9, iterations=5))) == 5


def test_iterations_count_from_the_beginning_of_the_first_part():
    last = list(train.fit(step, 0.0, batches(), iterations=5))[-1]
    rest = train.fit(
        step, last.state, batches(), iterations=7, position=last.position, iteration=last.iteration
    )
    assert [r.iteration for r in rest] == [6, 7]


def test_nothing_is_computed_before_a_report_is_asked_for():
    calls = []

    def noting(state, batch):
        calls.append(batch)
        return state, {}

    reports = train.fit(noting, 0, batches(), epochs=1)
    assert calls == []
    next(reports)
    assert len(calls) == 1


def test_closing_ends_the_run():
    reports = train.fit(step, 0.0, batches(), epochs=1)
    next(reports)
    reports.close()
    assert list(reports) == []


def test_two_runs_may_be_read_in_iterations():
    one, other = (train.fit(step, 0.0, batches(), epochs=2) for _ in range(2))
    assert all(a.state == b.state for a, b in zip(one, other, strict=True))


def test_reports_cannot_be_changed():
    report = next(train.fit(step, 0.0, batches(), epochs=1))
    with pytest.raises(fdbr.tree.FrozenError):
        report.state = 1
    with pytest.raises(TypeError):
        report.metrics["sum"] = 1


def test_later_changes_of_the_metrics_mapping_do_not_reach_the_report():
    metrics = {"a": 1}
    report = next(train.fit(lambda s, b: (s, metrics), 0, batches(), epochs=1))
    metrics["a"] = 2
    assert report.metrics["a"] == 1


def test_metrics_stay_as_the_step_made_them():
    value = np.float32(0.5)
    report = next(train.fit(lambda s, b: (s, {"a": value}), 0, batches(), epochs=1))
    assert report.metrics["a"] is value


def test_seconds_do_not_include_the_time_before_the_first_report():
    reports = train.fit(step, 0.0, batches(), epochs=1)
    time.sleep(0.05)
    assert next(reports).seconds < 0.05


def test_a_run_of_no_epochs_is_empty():
    assert list(train.fit(step, 0.0, batches(), epochs=0)) == []


def test_a_finished_run_has_nothing_left():
    rest = train.fit(step, 0.0, batches(), epochs=2, position=train.Position(3, 1), iteration=13)
    assert list(rest) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, TypeError, "give epochs, iterations, until, or several"),
        ({"epochs": -1}, ValueError, "epochs must be at least 0, got -1"),
        ({"epochs": 1.5}, TypeError, "epochs must be an integer, got float 1.5"),
        ({"iterations": "9"}, TypeError, "iterations must be an integer"),
        ({"epochs": 1, "iteration": -1}, ValueError, "iteration must be at least 0"),
        ({"epochs": 1, "position": (0, 1)}, TypeError, "position must be a Position, got tuple"),
        (
            {"epochs": 1, "position": train.Position(0, 5)},
            ValueError,
            "at batch 5, but an epoch has 4 batches",
        ),
    ],
)
def test_arguments_are_checked_when_fit_is_called(options, error, message):
    with pytest.raises(error, match=message):
        train.fit(step, 0.0, batches(), **options)


def test_a_step_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="step must be a function, not int"):
        train.fit(3, 0.0, batches(), epochs=1)


def test_batches_that_are_a_mere_array_are_told_what_to_become():
    with pytest.raises(TypeError, match=r"got ndarray; make them with fdbr.train.Batches"):
        train.fit(step, 0.0, DATA, epochs=1)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, r"must return \(state, metrics\), got a NoneType"),
        ((1, {}, 2), r"must return \(state, metrics\), got a tuple of 3"),
        ((1, 0.5), r"must be a mapping .* got a float"),
    ],
)
def test_a_step_that_returns_something_else_is_told_so(result, message):
    reports = train.fit(lambda state, batch: result, 0, batches(), epochs=1)
    with pytest.raises(TypeError, match=message):
        next(reports)


def test_a_source_whose_length_is_wrong_is_found_out():
    class Short:
        def __len__(self):
            return 3

        def epoch(self, number, start=0):
            return iter([1.0, 2.0])

    with pytest.raises(ValueError, match="has len 3, but epoch 0 ended after batch 2"):
        list(train.fit(lambda s, b: (s, {}), 0, Short(), epochs=1))


def test_an_error_of_the_step_comes_out_as_it_is():
    def failing(state, batch):
        raise ZeroDivisionError("in the step")

    with pytest.raises(ZeroDivisionError, match="in the step"):
        next(train.fit(failing, 0, batches(), epochs=1))


def test_a_network_is_trained_on_every_array_module(xp, to_numpy):
    keys = random.split(random.key(0), 4)
    x = random.normal(keys[0], (60, 2), "float32")
    dataset = {"x": xp.asarray(x), "label": xp.asarray((x[:, 0] > x[:, 1]).astype(np.int64))}
    model = nn.Sequential(nn.Linear.init(keys[1], 2, 8), ops.relu, nn.Linear.init(keys[2], 8, 2))
    model = fdbr.tree.map(xp.asarray, model)
    optimizer = train.optim.adam(0.02)

    def loss(model, batch):
        return ops.softmax_cross_entropy(model(batch["x"]), batch["label"])

    def update(state, batch):
        model, opt = state
        value, grads = fdbr.value_and_grad(loss)(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    source = train.Batches(dataset, 20, key=keys[3])
    reports = train.fit(update, (model, optimizer.init(model)), source, epochs=30)
    final = list(train.pipe(reports, train.average()))[-1]
    assert final.metrics["loss"] < 0.15
    assert final.state[0](dataset["x"]).shape == (60, 2)


# --- resuming with a report ---------------------------------------------------------


def test_a_report_says_where_to_go_on():
    whole = list(train.fit(step, 0.0, batches(), epochs=2))
    rest = list(train.fit(step, None, batches(), epochs=2, resume=whole[2]))
    assert [(r.iteration, r.state) for r in rest] == [(r.iteration, r.state) for r in whole[3:]]
    assert len(list(train.fit(step, 0.0, batches(), epochs=2, resume=None))) == 8


def test_a_report_and_a_position_are_not_given_both():
    report = next(train.fit(step, 0.0, batches(), epochs=1))
    with pytest.raises(TypeError, match="leave position and iteration out"):
        train.fit(step, 0.0, batches(), epochs=1, resume=report, position=report.position)
    with pytest.raises(TypeError, match="resume must be the report"):
        train.fit(step, 0.0, batches(), epochs=1, resume=report.state)


def test_seconds_go_on_after_a_resume():
    report = next(train.fit(step, 0.0, batches(), epochs=1))
    before = attrs.evolve(report, position=train.Position(0, 1, seconds=100.0))
    following = next(train.fit(step, 0.0, batches(), epochs=1, resume=before))
    assert 100 < following.seconds < 101
    assert following.position.seconds == following.seconds


def test_positions_are_equal_whatever_they_carry():
    one, other = train.Position(1, 2, kept={"a": np.ones(2)}, seconds=3.0), train.Position(1, 2)
    assert one == other
    assert repr(one) == repr(other) == "Position(epoch=1, batch=2)"
    assert fdbr.tree.leaves(one) == [1, 2]
    assert fdbr.tree.map(lambda n: n, one).kept == one.kept
    with pytest.raises(fdbr.tree.FrozenError):
        one.epoch = 3
    with pytest.raises(TypeError):
        one.kept["b"] = 1


def test_reports_go_through_pickle():
    report = next(train.fit(step, 0.0, batches(), epochs=1)).keep("a", [1])
    for copied in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert dict(copied.metrics) == dict(report.metrics)
        assert places([copied]) == places([report])
        assert copied.position.kept["a"] == [1]
        assert copied.position.seconds == report.seconds


# --- sources ------------------------------------------------------------------------


class Unsized:
    def __init__(self, source):
        self.source = source

    def epoch(self, number, start=0):
        return self.source.epoch(number, start)


def places(reports):
    return [(r.iteration, r.position, r.state) for r in reports]


@given(st.integers(1, 6), st.integers(0, 12))
@settings(max_examples=20)
def test_a_source_without_a_length_is_as_good(size, stop):
    whole = list(train.fit(step, 0.0, batches(size), epochs=3))
    assert places(train.fit(step, 0.0, Unsized(batches(size)), epochs=3)) == places(whole)
    last = whole[min(stop, len(whole) - 1)]
    rest = train.fit(step, None, Unsized(batches(size)), epochs=3, resume=last)
    assert places(rest) == places(whole[last.iteration :])


def test_the_end_of_a_run_is_unknown_if_the_length_is():
    assert next(train.fit(step, 0.0, Unsized(batches()), epochs=3)).total is None
    assert next(train.fit(step, 0.0, Unsized(batches()), iterations=3)).total == 3


def test_a_list_of_batches_is_read_in_every_epoch():
    listed = [DATA[:3], DATA[3:]]
    whole = list(train.fit(step, 0.0, listed, epochs=2))
    at = [(0, 1), (1, 0), (1, 1), (2, 0)]
    assert [r.position for r in whole] == [train.Position(*p) for p in at]
    assert places(train.fit(step, 0.0, listed, epochs=2, resume=whole[0])) == places(whole[1:])


def test_a_generator_is_one_epoch_and_is_read_from_its_beginning():
    def stream():
        yield from (DATA[:3], DATA[3:5], DATA[5:])

    whole = list(train.fit(step, 0.0, stream()))
    assert [r.position for r in whole] == [train.Position(*p) for p in ((0, 1), (0, 2), (1, 0))]
    assert places(train.fit(step, 0.0, stream(), resume=whole[0])) == places(whole[1:])
    assert list(train.fit(step, 0.0, stream(), resume=whole[-1])) == []
    assert len(list(train.fit(step, 0.0, stream(), iterations=2))) == 2
    assert len(list(train.fit(step, 0.0, stream(), epochs=1, iterations=9))) == 3
    with pytest.raises(ValueError, match="batches is an iterator, which ended after 3 iterations"):
        list(train.fit(step, 0.0, stream(), epochs=2))
    with pytest.raises(ValueError, match="at batch 7, but batches ended after 3"):
        list(train.fit(step, 0.0, stream(), position=train.Position(0, 7), iteration=7))


def test_a_source_that_gives_too_much_or_nothing_is_found_out():
    class Long(list):
        def __len__(self):
            return 2

    with pytest.raises(ValueError, match="has len 2, but an epoch has a batch 3"):
        list(train.fit(step, 0.0, Long([DATA] * 3), epochs=1))
    with pytest.raises(ValueError, match="epoch 0 of batches has no batch"):
        list(train.fit(step, 0.0, iter([]), epochs=1))


def test_sources_side_by_side_have_epochs_of_their_own():
    few, many = batches(5), batches(2)
    zipped = train.zip(few=few, many=many)
    assert len(zipped) == 5
    seen = [b for epoch in range(2) for b in zipped.epoch(epoch)]
    expected = [b for epoch in range(5) for b in few.epoch(epoch)]
    assert all((s["few"] == e).all() for s, e in zip(seen, expected, strict=True))
    expected = [b for epoch in range(2) for b in many.epoch(epoch)]
    assert all((s["many"] == e).all() for s, e in zip(seen, expected, strict=True))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 15))
@settings(max_examples=20)
def test_a_run_on_several_sources_goes_on_where_it_was(sizes, stop):
    zipped = train.zip(*map(batches, sizes))

    def stepped(state, found):
        assert len(found) == len(sizes)
        return state * 0.5 + sum((i + 1) * b.sum() for i, b in enumerate(found)), {}

    whole = list(train.fit(stepped, 0.0, zipped, epochs=2))
    last = whole[min(stop, len(whole) - 1)]
    rest = train.fit(stepped, None, zipped, epochs=2, resume=last)
    assert places(rest) == places(whole[last.iteration :])
    for size, position in zip(sizes, zipped.positions(last.position), strict=True):
        assert position.epoch * len(batches(size)) + position.batch == last.iteration


def test_what_cannot_be_zipped_is_refused():
    with pytest.raises(TypeError, match="either all with names or all without"):
        train.zip(batches(), b=batches())
    with pytest.raises(TypeError, match=r"source 1 must have len and epoch\(number, start\)"):
        train.zip(batches(), Unsized(batches()))


# --- examples -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (np.zeros((5, 2)), 5),
        ({"y": np.zeros(4), "a": np.float32(1)}, 4),
        ((np.float64(1.0), (np.zeros((3, 1)), np.zeros(7))), 3),
        (["a", "b"], 2),
        ([np.zeros(2), np.zeros(3), np.zeros(4)], 3),
        ([np.zeros((6, 2)), np.zeros(6, int)], 6),
        (train.Report(1, 1, {}, np.zeros(9), train.Position(), 0.0), 9),
        (3, None),
        ("text", None),
        ({}, None),
    ],
)
def test_the_examples_of_a_batch_are_counted(batch, count):
    reports = train.fit(lambda s, b: (s, {}), 0, [batch], epochs=1)
    assert next(reports).examples == count


def test_the_count_of_examples_may_be_told():
    reports = train.fit(step, 0.0, batches(), epochs=1, examples=lambda batch: 2 * len(batch))
    assert [r.examples for r in reports] == [6, 6, 6, 2]


# --- beginning and end --------------------------------------------------------------


def test_a_run_may_begin_with_a_report_of_its_first_state():
    first, second, *_ = train.fit(step, 7.0, batches(), epochs=1, initial=True)
    assert (first.iteration, first.state, dict(first.metrics)) == (0, 7.0, {})
    assert first.position == train.Position()
    assert second.iteration == 1
    for report in (first, second):
        following = train.fit(step, 0.0, batches(), epochs=1, initial=True, resume=report)
        assert next(following).iteration == report.iteration + 1


def test_intervals_hold_for_iteration_0():
    reports = train.fit(step, 7.0, batches(), epochs=1, initial=True)
    stage = train.evaluate(lambda state: {"state": state})
    assert dict(next(train.pipe(reports, train.average(), stage)).metrics) == {"test/state": 7.0}


def test_a_trigger_may_end_a_run():
    def large(report):
        return report.state > 30

    whole = list(train.fit(step, 0.0, batches(), epochs=9))
    ended = list(train.fit(step, 0.0, batches(), until=large))
    assert len(ended) < 36
    assert [large(r) for r in ended] == [False] * (len(ended) - 1) + [True]
    assert places(ended) == places(whole[: len(ended)])
    assert list(train.fit(step, 0.0, batches(), until=large, resume=ended[-1])) == []
    assert len(list(train.fit(step, 0.0, batches(), epochs=9, resume=ended[-1]))) == 36 - len(ended)

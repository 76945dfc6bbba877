"""Any part of a run and a resume of it is the run, for every stage that keeps something."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr import random, train

DATA = np.sin(np.arange(7.0) * 5)
EACH = train.every(iterations=1)
SECOND = train.every(iterations=2)


def step(state, batch):
    state = 0.5 * state + batch.sum()
    return state, {"loss": state, "mean": batch.mean()}


def batches(size=2):
    return train.Batches(DATA, size, key=random.key(3))


def without_times(text):
    lines = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


STAGES = {
    "average": lambda folder: [train.average()],
    "averages": lambda folder: [
        train.average(train.every(iterations=3)),
        train.average(train.every(epochs=1), name="of epochs"),
    ],
    "micro": lambda folder: [train.micro_average("ratio", "loss", "mean", every=SECOND)],
    "evaluate": lambda folder: [
        train.evaluate(lambda state: {"x": state}, every=train.best("loss", every=SECOND))
    ],
    "stateful": lambda folder: [
        train.stateful(lambda n, r: (n + 1, r.with_metrics({"n": n})), 0, name="count")
    ],
    "until": lambda folder: [train.until(train.early_stopping("loss", patience=2, every=EACH))],
    "until best": lambda folder: [
        train.until(train.once(train.at(iterations=5)) | (lambda r: r.metrics["mean"] > 0.9))
    ],
    "observe": lambda folder: [
        train.observe("x", lambda r: r.iteration, every=train.once(train.every(iterations=3)))
    ],
    "log": lambda folder: [train.log(folder / "log.jsonl", every=train.best("loss", every=EACH))],
    "csv": lambda folder: [
        train.evaluate(lambda state: {"x": state}),
        train.log(folder / "log.csv", every=SECOND | train.every(epochs=1)),
    ],
    "plot": lambda folder: [train.plot(folder / "curves.svg", every=lambda r: r.iteration == 99)],
}


def run(name, folder, resume=None, initial=False, **end):
    reports = train.fit(
        step, 0.0, batches(), resume=resume, initial=initial, **(end or {"epochs": 3})
    )
    return train.pipe(reports, *STAGES[name](folder))


def seen(reports):
    return [
        (r.iteration, r.state, dict(r.metrics), r.position, _plain(r.position.kept))
        for r in reports
    ]


def _plain(kept):
    return json.loads(json.dumps(dict(kept), default=lambda value: np.asarray(value).tolist()))


@pytest.mark.parametrize("name", STAGES)
@given(cut=st.integers(1, 12), past=st.integers(0, 2), initial=st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_part_and_the_rest_are_the_whole(name, cut, past, initial, tmp_path_factory):
    one, other = (tmp_path_factory.mktemp("run") for _ in range(2))
    whole = list(run(name, one, initial=initial and name == "log"))
    first = []
    for report in run(name, other, initial=initial and name == "log"):
        first.append(report)
        if len(first) == cut + past:  # it was killed so much later than its snapshot
            break
    first = first[:cut]
    rest = list(run(name, other, first[-1], initial=initial and name == "log"))
    assert seen(first + rest) == seen(whole)
    for path in one.glob("*.jsonl"):
        assert without_times((other / path.name).read_text()) == without_times(path.read_text())
    for path in one.glob("*.csv"):
        tables = [(folder / path.name).read_text().splitlines() for folder in (one, other)]
        kept = [[[*row.split(",")[:2], *row.split(",")[3:]] for row in table] for table in tables]
        assert kept[0] == kept[1]


def test_a_mean_resumed_in_an_epoch_is_that_of_the_whole():
    def reports(resume=None):
        source = train.Batches(np.arange(3), 1)
        return train.fit(lambda s, b: (s, {"x": b.sum()}), 0, source, epochs=1, resume=resume)

    first = next(train.pipe(reports(), train.average()))
    rest = train.pipe(reports(first), train.average())
    assert [r.metrics["x"] for r in rest] == [1, 1.0]


@pytest.mark.parametrize("name", ["average", "evaluate", "until", "observe", "plot"])
def test_what_is_kept_comes_back_from_a_snapshot(name, tmp_path):
    whole = list(run(name, tmp_path))
    folder = tmp_path / "snapshots"
    for report in train.pipe(run(name, tmp_path), train.snapshot(folder, every=EACH)):
        if report.iteration == 3:
            break
    found = train.resume(folder, like=0.0)
    assert found.iteration == 3
    assert seen([*whole[:3], *run(name, tmp_path, found)]) == seen(whole)


def test_a_run_that_was_ended_has_nothing_left_unless_the_end_is_another(tmp_path):
    ended = list(run("until", tmp_path))
    assert 1 < len(ended) < 12
    assert list(run("until", tmp_path, ended[-1])) == []
    more = train.until(train.early_stopping("loss", patience=9, every=EACH))
    rest = train.fit(step, 0.0, batches(), epochs=3, resume=ended[-1])
    assert len(list(train.pipe(rest, more))) == 12 - len(ended)


def test_what_stands_before_the_end_of_a_run_sees_no_report_behind_it(tmp_path):
    made = []

    def counted(state, batch):
        made.append(state)
        return step(state, batch)

    def started(resume=None):
        reports = train.fit(counted, 0.0, batches(), epochs=3, resume=resume)
        ends = train.until(lambda report: report.iteration == 4)
        log = train.log(tmp_path / "log.jsonl", every=train.every(iterations=1))
        return list(train.pipe(reports, log, ends, train.until(lambda report: False, "other")))

    last = started()[-1]
    text = (tmp_path / "log.jsonl").read_text()
    assert started(last) == []
    assert len(made) == 4
    assert (tmp_path / "log.jsonl").read_text() == text


@given(cut=st.integers(1, 9))
@settings(max_examples=9, deadline=None)
def test_a_run_that_a_trigger_ends_is_resumed_with_what_it_kept(cut):
    def started(resume=None):
        until = train.early_stopping("loss", patience=2, every=EACH)
        return train.fit(step, 0.0, batches(), until=until, resume=resume)

    whole = list(started())
    last = whole[min(cut, len(whole)) - 1]
    assert seen(started(last)) == seen(whole[last.iteration :])


def test_a_resume_may_have_other_stages_another_end_and_other_numbers(tmp_path):
    first = list(train.pipe(train.fit(step, 0.0, batches(), epochs=1), train.average()))[-1]

    def slower(state, batch):
        state, metrics = step(state, batch)
        return state / 2, metrics

    rest = train.fit(slower, 0.0, batches(1), epochs=2, resume=first)
    stages = train.evaluate(lambda state: {"x": state}), train.log(tmp_path / "log.jsonl")
    reports = list(train.pipe(rest, *stages))
    assert [r.iteration for r in reports] == list(range(5, 12))
    assert reports[0].total == 11
    assert dict(reports[-1].position.kept) == {}


def test_means_of_arrays_of_any_module_come_back_from_a_snapshot(tmp_path, xp, to_numpy):
    def reports(resume=None):
        source = train.Batches(xp.asarray(DATA), 2)
        step = lambda state, batch: (state + batch.sum(), {"x": state})
        return train.fit(step, xp.asarray(np.zeros(())), source, epochs=1, resume=resume)

    whole = list(train.pipe(reports(), train.average()))
    for report in train.pipe(reports(), train.average(), train.snapshot(tmp_path, every=EACH)):
        if report.iteration == 3:
            break
    last = train.resume(tmp_path, like=xp.asarray(np.zeros(())))
    assert list(train.pipe(reports(last), train.average()))[-1].metrics == whole[-1].metrics

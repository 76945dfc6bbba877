"""Reports, metrics and decisions of all ranks."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import distributed as d
from fdbr import random, train


def reports(rank, counts, values, seconds=()):
    """Reports of a rank, one for each of its batches."""
    for i, (count, value) in enumerate(zip(counts, values, strict=True), 1):
        time = seconds[i - 1] if seconds else float(i)
        position = train.Position(0, i)
        yield train.Report(i, 0, {"loss": value}, None, position, time, None, count)


@given(
    data=st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=4),
    every=st.integers(1, 3),
)
def test_metrics_of_all_ranks_are_means_over_all_examples(data, every):
    values = [[0.1 * n + r for n in counts] for r, counts in enumerate(data)]
    for r, counts in enumerate(data):
        values[r] = [math.nan if n == 0 else v for n, v in zip(counts, values[r], strict=True)]

    def f(comm):
        stream = reports(comm.rank, data[comm.rank], values[comm.rank])
        stage = d.aggregate(comm, train.every(iterations=every))
        return [(r.metrics["loss"], r.examples) for r in stage(stream)]

    found = d.run_in_threads(f, len(data))
    assert repr(found[0][every - 1 :: every]) == repr(found[-1][every - 1 :: every])
    for i in range(every - 1, 3, every):
        since = range(i - every + 1, i + 1)
        weight = sum(counts[j] for counts in data for j in since)
        total = sum(
            counts[j] * own[j]
            for counts, own in zip(data, values, strict=True)
            for j in since
            if counts[j]
        )
        loss, examples = found[0][i]
        assert examples == sum(counts[i] for counts in data)
        np.testing.assert_allclose(loss, total / weight if weight else math.nan)


def test_aggregated_reports_average_and_divide_as_those_of_one_rank():
    batches = train.Batches(np.arange(11.0), 4, random.key(1))

    def step(state, batch):
        right = float((batch > 4).sum())
        mean = float(batch.mean()) if len(batch) else math.nan
        return state, {"loss": mean, "right": right, "found": float(len(batch))}

    def f(comm):
        stream = train.fit(step, 0.0, d.share(batches, comm), epochs=2)
        stages = [
            d.aggregate(comm, sums=("right", "found")),
            train.micro_average("precision", "right", "found"),
            train.average(),
        ]
        return [dict(r.metrics) for r in train.pipe(stream, *stages) if not r.position.batch]

    alone = f(d.serial())
    for size in (2, 3, 5):
        found = d.run_in_threads(f, size)
        assert all(one == found[0] for one in found)
        for one, other in zip(found[0], alone, strict=True):
            assert one == pytest.approx(other, rel=1e-14)


def test_a_resumed_run_goes_on_with_the_sums_of_all_ranks():
    counts, values = [[1, 2, 3], [3, 0, 1]], [[1.0, 2.0, 3.0], [4.0, math.nan, 6.0]]

    def f(comm):
        own = list(reports(comm.rank, counts[comm.rank], values[comm.rank]))
        stage = d.aggregate(comm, train.every(iterations=3))
        whole = list(stage(iter(own)))
        first = list(stage(iter(own[:2])))
        kept = first[-1].position.kept["aggregate"]
        rest = own[2].keep("other", 1)
        rest = train.Report(
            3,
            0,
            own[2].metrics,
            None,
            train.Position(0, 3, {"aggregate": kept}),
            3.0,
            None,
            3 - 2 * comm.rank,
        )
        return whole[-1].metrics["loss"], next(stage(iter([rest]))).metrics["loss"]

    for whole, resumed in d.run_in_threads(f, 2):
        assert whole == resumed == (1 + 4 + 9 + 12 + 6) / 10


def test_evaluation_is_that_of_one_rank():
    data = train.Batches(np.arange(7.0), 3)

    def f(comm):
        def metrics(state, batch):
            assert len(batch)
            return {"mean": state * batch.mean()}

        stage = d.evaluate(metrics, comm, d.share(data, comm), every=lambda report: True)
        stream = reports(comm.rank, [1], [0.5])
        one = next(stage(r for r in map(with_state, stream))).metrics
        parts = train.Batches(d.scatter_dataset(np.arange(7.0), comm, equal_lengths=False), 2)
        other = d.evaluate(metrics, comm, parts, lambda report: True, "parts/")
        two = next(other(r for r in map(with_state, reports(0, [1], [0.5])))).metrics
        return one["test/mean"], two["parts/mean"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (1, 2, 3, 5):
            found = d.run_in_threads(f, size)
            assert set(found) == {(6.0, 6.0)}


def with_state(report):
    return train.Report(
        report.iteration, 1, report.metrics, 2.0, train.Position(1, 0), report.seconds
    )


def test_only_the_root_has_the_stages_of_on_root(tmp_path):
    def f(comm):
        folder = tmp_path / f"{comm.rank}"
        own = reports(comm.rank, [1, 1], [1.0, 3.0])
        every = train.every(iterations=2)
        stage = d.on_root(
            comm, train.average(every), train.log(folder / "log.jsonl", every), root=1
        )
        return [(r.metrics["loss"], sorted(r.position.kept)) for r in stage(own)]

    first, second = d.run_in_threads(f, 2)
    assert first == [(1.0, []), (3.0, [])]
    assert second == [(1.0, ["average"]), (3.0, ["average"])]
    assert not (tmp_path / "0").exists()
    assert '"loss": 2.0' in (tmp_path / "1" / "log.jsonl").read_text()


def test_stages_of_on_root_must_give_every_report():
    def leaving_out(stream):
        return (report for report in stream if report.iteration != 1)

    for stage, message in [
        (train.until(lambda report: True), "ended the run, on this rank alone"),
        (leaving_out, "left out the report of iteration 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            list(d.on_root(d.serial(), stage)(reports(0, [1, 1], [1.0, 2.0])))
    with pytest.raises(TypeError, match=r"fdbr\.distributed\.on_root: a stage is a function"):
        d.on_root(d.serial(), 3)


def test_closing_a_run_closes_what_the_root_reads_from():
    closed = []

    def source():
        try:
            yield from reports(0, [1, 1], [1.0, 2.0])
        finally:
            closed.append(True)

    stream = train.pipe(source(), d.on_root(d.serial(), train.average()))
    next(stream)
    stream.close()
    assert closed == [True]


@pytest.mark.parametrize("limit", [train.within(seconds=3), train.early_stopping("loss", 1)])
def test_ranks_end_together_though_they_see_different_things(limit):
    limit = (
        limit if "within" in limit.label else train.early_stopping("loss", 1, every=lambda r: True)
    )

    def f(comm):
        values = [3.0, 2.0, 1.0, 0.5] if comm.rank else [3.0, 2.0, 2.5, 2.5]
        seconds = [1.0, 2.5, 2.9, 3.5] if comm.rank else [1.0, 2.0, 3.0, 4.0]
        stream = reports(comm.rank, [1] * 4, values, seconds)
        one = [r.iteration for r in d.until(limit, comm)(stream)]
        stream = reports(comm.rank, [1] * 4, values, seconds)
        other = [r.iteration for r in train.until(d.agreed(limit, comm))(stream)]
        return one, other

    assert d.run_in_threads(f, 2) == [([1, 2, 3], [1, 2, 3])] * 2


def test_aggregated_metrics_and_times_have_triggers_agree():
    def f(comm):
        values = [3.0 - comm.rank, 2.0, 2.0 + 3 * comm.rank, 0.0]
        stream = reports(comm.rank, [1] * 4, values, [comm.rank + i for i in (1.0, 2.0, 3.0, 4.0)])
        stages = [
            d.aggregate(comm),
            train.until(train.early_stopping("loss", 1, every=lambda r: True)),
        ]
        return [(r.iteration, r.seconds) for r in train.pipe(stream, *stages)]

    assert d.run_in_threads(f, 2) == [[(1, 1.0), (2, 2.0), (3, 3.0)]] * 2


@pytest.mark.parametrize("stage", [d.aggregate, lambda comm: d.until(lambda r: False, comm)])
def test_ranks_at_different_iterations_are_told_so(stage):
    def f(comm):
        stream = reports(comm.rank, [1] * 3, [0.0] * 3)
        if comm.rank:
            next(stream)
        list(stage(comm)(stream))

    with pytest.raises(d.DistributedError, match=r"different iterations, \[1, 2\]"):
        d.run_in_threads(f, 2)


def test_plateaus_of_the_mean_over_ranks_are_the_same_everywhere():
    plateau = train.optim.reduce_on_plateau(factor=0.5, patience=1)
    optimizer = train.optim.chain(train.optim.sgd(1.0), plateau)

    def f(comm):
        state, params = optimizer.init(np.zeros(1)), np.zeros(1)
        for i in range(6):
            value = d.all_reduce(float(comm.rank * i), comm, "mean")
            updates, state = optimizer.update(np.ones(1), state, params, value=value)
        return updates.tolist()

    first, second = d.run_in_threads(f, 2)
    assert first == second
    assert first[0] > -1.0

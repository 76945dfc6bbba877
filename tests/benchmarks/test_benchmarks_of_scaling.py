"""The cost model of many ranks: its laws, its simulation beside it, and the paper's figures."""

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling import __main__, delays, measuring, paper, steps
from benchmarks.scaling.collectives import ALGORITHMS, all_reduce, fastest, least
from benchmarks.scaling.fitting import Sample, fit_link
from benchmarks.scaling.links import Cluster, Link
from benchmarks.scaling.messages import finish_times
from benchmarks.scaling.simulation import simulate
from benchmarks.scaling.steps import SCHEDULES, predict, reducing, step_seconds
from benchmarks.scaling.workload import Layer, Workload, resnet50
from fdbr import distributed

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)

small = st.floats(0, 1e-4)
tiny = st.floats(0, 1e-8)
sizes = st.floats(1, 1e9)
LINKS = st.builds(Link, small, tiny, tiny)


@st.composite
def clusters(draw):
    """Nodes whose ranks are nearer to each other than to those of other nodes."""
    inner = draw(LINKS)
    slower = st.floats(1, 10)
    outer = Link(*(value * draw(slower) for value in attrs.astuple(inner)))
    return Cluster(draw(st.integers(1, 6)), draw(st.integers(1, 5)), inner, outer)


@st.composite
def workloads(draw):
    seconds = st.floats(1e-4, 1e-2)
    layer = st.builds(
        Layer, st.just("a layer"), seconds, seconds, st.integers(0, 10**6)
    )  # of which those without parameters are pooling
    return Workload(tuple(draw(st.lists(layer, min_size=1, max_size=6))), draw(seconds))


@every_algorithm
@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("size", [8, 1e6])
def test_messages_one_by_one_take_what_the_closed_form_says(algorithm, ranks, size):
    cluster = Cluster.flat(ranks, Link(5e-6, 1e-9, 2e-10))
    times = finish_times(algorithm, cluster, size)
    assert max(times) == pytest.approx(all_reduce(algorithm, cluster, size))


@every_algorithm
@given(cluster=clusters(), size=sizes)
def test_messages_one_by_one_stay_between_the_bounds(algorithm, cluster, size):
    taken = max(finish_times(algorithm, cluster, size))
    below, above = least(cluster, size), all_reduce(algorithm, cluster, size)
    assert below * (1 - 1e-9) <= taken <= above * (1 + 1e-9)


@every_algorithm
@given(cluster=clusters(), begin=st.lists(st.floats(0, 1), min_size=30, max_size=30))
def test_nobody_has_the_result_before_the_last_has_come(algorithm, cluster, begin):
    begin = begin[: cluster.size]
    ends = finish_times(algorithm, cluster, 1e6, begin)
    assert min(ends) >= max(begin)
    assert max(ends) <= (max(begin) + all_reduce(algorithm, cluster, 1e6)) * (1 + 1e-9)


@every_algorithm
@given(cluster=clusters(), size=sizes, more=st.floats(1, 100))
def test_more_bytes_are_never_faster(algorithm, cluster, size, more):
    assert all_reduce(algorithm, cluster, size) <= all_reduce(algorithm, cluster, size * more)


@every_algorithm
def test_one_rank_and_no_bytes_take_no_time(algorithm):
    link = Link(1.0, 1.0, 1.0)
    assert all_reduce(algorithm, Cluster.flat(1, link), 100) == 0
    assert all_reduce(algorithm, Cluster(4, 4, link, link), 0) == 0
    assert finish_times(algorithm, Cluster.flat(1, link), 100) == [0.0]


@every_algorithm
@given(cluster=clusters(), size=sizes)
def test_with_infinite_bandwidth_latencies_are_left(algorithm, cluster, size):
    unbounded = [
        attrs.evolve(one, per_byte=0, reduction=0) for one in (cluster.inner, cluster.outer)
    ]
    without = attrs.evolve(cluster, inner=unbounded[0], outer=unbounded[1])
    assert all_reduce(algorithm, without, size) == all_reduce(algorithm, without, 1.0)
    assert all_reduce(algorithm, without, size) <= all_reduce(algorithm, cluster, size)


def test_trees_win_for_few_bytes_and_rings_for_many():
    cluster = Cluster.flat(100, Link(1e-5, 1e-9))
    assert fastest(cluster, 8)[0] == "doubling"
    assert fastest(cluster, 1e9)[0] == "ring"
    assert fastest(paper.CLUSTER, 1e5)[0] != "ring"  # 2,046 latencies


@given(link=st.builds(Link, st.floats(1e-7, 1e-3), st.floats(1e-11, 1e-7)))
@pytest.mark.parametrize("algorithm", ["ring", "doubling", "halving", "tree"])
def test_a_link_is_found_by_the_times_of_its_all_reduces(link, algorithm):
    samples = [
        Sample(ranks, size, all_reduce(algorithm, Cluster.flat(ranks, link), size))
        for ranks, size in itertools.product((1, 2, 4, 6), (16.0, 4e3, 1e6))
    ]
    found = fit_link(samples, algorithm)
    assert attrs.astuple(found.link) == pytest.approx(attrs.astuple(link), rel=1e-6)
    assert found.error < 1e-6
    assert fit_link(samples).error < 1e-6


def test_a_link_cannot_be_found_by_one_size():
    with pytest.raises(ValueError, match="two sizes"):
        fit_link([Sample(2, 8.0, 1.0), Sample(1, 16.0, 1.0)])


@every_schedule
@given(workload=workloads(), cluster=clusters())
def test_without_stragglers_a_simulated_step_takes_what_the_closed_form_says(
    schedule, workload, cluster
):
    reduce = reducing(cluster, "ring")
    run = simulate(workload, cluster.size, reduce, schedule=schedule, bucket=1e6, steps=4)
    assert run.seconds == pytest.approx(step_seconds(workload, reduce, schedule, 1e6))
    assert 0 <= run.waiting <= 1
    assert 0 <= run.hidden <= 1 + 1e-9


@every_schedule
@given(workload=workloads(), cluster=clusters(), more=st.floats(1, 10))
def test_efficiency_is_above_zero_and_at_most_one_and_falls_with_bytes(
    schedule, workload, cluster, more
):
    found = predict(workload, cluster, schedule, bucket=1e6)
    assert 0 < found.efficiency <= 1 + 1e-9
    assert found.seconds >= max(workload.seconds, found.communication) * (1 - 1e-9)
    slower = [attrs.evolve(x, per_byte=x.per_byte * more) for x in (cluster.inner, cluster.outer)]
    with_slower = attrs.evolve(cluster, inner=slower[0], outer=slower[1])
    assert predict(workload, with_slower, schedule, bucket=1e6).seconds >= found.seconds * (
        1 - 1e-9
    )


@every_schedule
@given(workload=workloads(), cluster=clusters(), seed=st.integers(0, 100), theft=st.floats(0, 0.9))
def test_stragglers_and_stolen_time_never_make_a_step_shorter(
    schedule, workload, cluster, seed, theft
):
    reduce = reducing(cluster, "ring")
    same = {"schedule": schedule, "bucket": 1e6, "steps": 3}
    plain = simulate(workload, cluster.size, reduce, **same)
    for changed in (
        {"delay": delays.Exponential(0.2), "seed": seed},
        {"delay": delays.OneSlow(1.5)},
        {"theft": theft},
    ):
        other = simulate(workload, cluster.size, reduce, **same, **changed)
        assert (other.ends >= plain.ends * (1 - 1e-9)).all()


def test_with_one_bucket_a_step_waits_for_the_slowest_rank():
    workload = Workload((Layer("a layer", 0.1, 0.2, 10**6),))
    for delay in (delays.Normal(0.05), delays.Exponential(0.1), delays.Hiccups(0.01, 2.0)):
        run = simulate(workload, 64, lambda size: 0.01, schedule="after", delay=delay, steps=300)
        assert run.seconds == pytest.approx(0.01 + 0.3 * delay.expected_maximum(64), rel=0.02)


def test_the_largest_of_normal_numbers_is_what_tables_say():
    assert delays.expected_normal_maximum(1) == pytest.approx(0, abs=1e-9)
    assert delays.expected_normal_maximum(2) == pytest.approx(np.pi**-0.5)
    assert delays.expected_normal_maximum(8) == pytest.approx(1.4236, abs=1e-4)
    assert delays.expected_normal_maximum(1000) == pytest.approx(3.2414, abs=1e-4)


def test_a_steady_straggler_costs_double_buffering_as_much_but_a_late_one_does_not():
    workload, reduce = resnet50().taking(0.2), reducing(paper.CLUSTER.first(64))

    def lost(schedule, delay):
        run = simulate(workload, 64, reduce, schedule=schedule, delay=delay, steps=20)
        return run.seconds / step_seconds(workload, reduce, schedule) - 1

    assert lost("double", delays.OneSlow(1.2)) == pytest.approx(0.2, abs=0.01)
    assert lost("double", delays.Normal(0.08)) < 0.6 * lost("overlap", delays.Normal(0.08))


def test_a_thousand_ranks_are_simulated():
    workload = resnet50().taking(0.18)
    run = simulate(workload, 1024, reducing(paper.CLUSTER), delay=delays.Normal(0.08), steps=2)
    assert run.seconds > workload.seconds
    assert {name.split()[0] for name, *_ in run.spans} == {"compute", "reduce", "update"}


def test_the_workload_of_resnet50_has_its_parameters_and_buckets():
    workload = resnet50()
    assert workload.size == paper.SIZE
    buckets = workload.buckets(4e6)
    assert sum(one.size for one in buckets) == workload.size
    assert all(one.size >= 4e6 for one in buckets[:-1])
    assert sum(one.seconds for one in buckets) + workload.update == pytest.approx(workload.seconds)
    assert len(workload.buckets(None)) == 1


def test_the_papers_efficiency_on_1024_gpus_is_predicted_by_that_on_one_node():
    found = paper.fit("stragglers")
    assert found.efficiency(8) == pytest.approx(paper.MEASURED["node"])
    assert found.seconds(1024) == pytest.approx(paper.STEP)
    assert found.efficiency(1024) == pytest.approx(paper.MEASURED["all"], abs=0.03)
    by_node = found.efficiency(1024) / found.efficiency(8)
    assert by_node == pytest.approx(paper.MEASURED["all by node"], abs=0.03)


def test_a_fixed_overhead_or_messages_alone_do_not_explain_the_papers_figures():
    assert paper.fit("overhead").efficiency(1024) > paper.MEASURED["all"] + 0.05
    alone = paper.Fitted("overhead", paper.fit().compute, 0.0)
    assert alone.efficiency(8) > paper.MEASURED["node"] + 0.05


def test_the_simulation_of_the_papers_step_agrees_with_its_closed_form():
    found = paper.fit("stragglers")
    reduce = reducing(paper.CLUSTER, "ring")
    workload = resnet50().taking(found.compute)
    delay = delays.Normal(found.lost)
    run = simulate(workload, 1024, reduce, schedule="after", delay=delay, steps=30)
    assert run.seconds == pytest.approx(found.seconds(1024), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["paper"], "stragglers, one port a node"),
        (["predict", "--picture", "PICTURE"], "1024"),
        (["simulate", "--ranks", "8", "--steps", "2", "--picture", "PICTURE"], "nobody is late"),
    ],
)
def test_the_commands_print_tables_and_draw(arguments, shown, tmp_path, capsys):
    picture = tmp_path / "picture.png"
    __main__.main([str(picture) if one == "PICTURE" else one for one in arguments])
    assert shown in capsys.readouterr().out
    assert picture.exists() == ("--picture" in arguments)


def test_wrong_names_and_numbers_are_told():
    link = Link(1e-6, 1e-9)
    with pytest.raises(ValueError, match="no algorithm 'star'"):
        all_reduce("star", Cluster.flat(2, link), 8)
    with pytest.raises(ValueError, match="no schedule"):
        steps.buckets_of(Workload(()), "never")
    with pytest.raises(ValueError, match="latency must be at least 0"):
        Link(-1.0, 0.0)
    with pytest.raises(ValueError, match="no whole nodes"):
        Cluster(4, 8, link, link).first(12)
    with pytest.raises(ValueError, match="theft"):
        simulate(Workload(()), 2, lambda size: 0.0, theft=1.0)


def test_ranks_at_hand_are_measured():
    def measured(comm):
        samples = measuring.all_reduces(comm, (16, 4096), rounds=2)
        return samples, measuring.steps(comm, width=8, batch=4, rounds=2)

    (samples, step), *others = distributed.run_in_threads(measured, 3)
    assert all(other == (samples, step) for other in others)
    assert [(one.ranks, one.size) for one in samples] == [(2, 16), (2, 4096), (3, 16), (3, 4096)]
    assert all(one.seconds > 0 for one in samples)
    assert step.overlap > 0
    assert step.ranks == 3
    assert step.parameters == 4 * (8 * 8 + 8)
    assert fit_link(samples).link.latency >= 0

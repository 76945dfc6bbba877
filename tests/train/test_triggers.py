"""Predicates on reports."""

import pytest

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

"""Stages, triggers and batches that are not what they should be get errors that say what to do."""

import inspect

import numpy as np
import pytest

from fdbr import train

BATCHES = [{"x": np.ones(2), "y": np.zeros(2)}]
MAKERS = [
    *("average", "micro_average", "check_finite", "draw_tape", "evaluate", "log", "observe"),
    *("parameter_statistics", "plot", "plot_statistics", "progress", "snapshot", "stateful"),
    *("table", "tensorboard", "until"),
]
TRIGGERS = ["every", "at", "within", "once", "best", "early_stopping"]


def reports():
    return train.fit(lambda state, batch: (state, {"loss": 1.0}), 0.0, BATCHES, epochs=1)


@pytest.mark.parametrize("name", MAKERS)
def test_a_stage_that_was_not_called_is_named(name):
    with pytest.raises(TypeError, match=rf"stage 1, {name}, .*; call it: {name}\(…\)"):
        train.pipe(reports(), train.average(), getattr(train, name))


def test_all_that_makes_a_stage_or_a_trigger_is_known_here():
    found = {
        name: inspect.signature(getattr(train, name)).return_annotation
        for name in train.__all__
        if inspect.isfunction(getattr(train, name))
    }
    stages = inspect.signature(train.average).return_annotation
    assert sorted(name for name, kind in found.items() if kind is stages) == sorted(MAKERS)
    triggers = sorted(name for name, kind in found.items() if kind is train.Trigger)
    assert triggers == sorted(TRIGGERS)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("name", MAKERS)
def test_a_trigger_that_was_not_called_is_named(name, trigger, tmp_path):
    make = getattr(train, name)
    parameters = inspect.signature(make).parameters
    argument = "trigger" if name == "until" else "every"
    if argument not in parameters:
        pytest.skip("it takes no trigger")
    given = {"path": tmp_path / "a.png", "folder": tmp_path, "metric": "loss"}
    others = {
        key: given.get(key, "loss" if "ator" in key else lambda *args: {})
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and key != argument
    }
    match = rf"fdbr\.train\.{name}: {argument} is {trigger}, .*; call it: {argument}={trigger}\(…\)"
    with pytest.raises(TypeError, match=match):
        make(**others, **{argument: getattr(train, trigger)})


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (lambda reports: None, r"stage 0, .*must return an iterator of reports, got NoneType"),
        (lambda reports: 3, r"stage 0, .*must return an iterator of reports, got int 3"),
        (lambda reports: lambda more: more, r"stage 0, .*makes a stage; call it"),
        (None, r"stage 0 must be a function .* got NoneType"),
        ("average", r"stage 0 must be a function .* got str"),
    ],
)
def test_what_is_no_stage_or_returns_no_reports_is_refused(stage, message):
    with pytest.raises(TypeError, match=message):
        train.pipe(reports(), stage)


def test_a_stage_may_return_a_list():
    assert len(list(train.pipe(reports(), list, train.average()))) == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda ask: train.fit(lambda s, b: (s, {"loss": ask(b)}), 0.0, BATCHES, epochs=1),
        lambda ask: train.pipe(
            reports(), train.evaluate(lambda s, b: {"loss": ask(b)}, batches=BATCHES)
        ),
    ],
)
def test_a_key_that_a_batch_does_not_have_is_told_with_those_that_it_has(read):
    with pytest.raises(KeyError) as caught:
        list(read(lambda batch: batch["image"]))
    assert caught.value.args == ("image",)
    assert "the batch has no 'image'; its keys are 'x', 'y'" in caught.value.__notes__[0]
    with pytest.raises(KeyError) as caught:  # of something else than the batch
        list(read(lambda batch: {}["x"]))
    assert not hasattr(caught.value, "__notes__")


def test_no_batches_are_refused_at_once():
    with pytest.raises(ValueError, match=r"fdbr\.train\.fit: batches are empty"):
        train.fit(lambda s, b: (s, {}), 0.0, [], epochs=1)
    with pytest.raises(ValueError, match=r"fdbr\.train\.evaluate: batches are empty"):
        train.evaluate(lambda s, b: {}, batches=[])

"""`jit(f, check=n)` compares every n-th call with the function itself, and says what differs."""

import pickle
import re
import types

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.debug import sanitizer

X = np.array([1.0, -2.0, 3.0])


@pytest.fixture
def blind(monkeypatch):
    """Guards that notice nothing, as if they were missing."""
    captures = "fdbr.compiler.capture.watch.captures.Captures"
    monkeypatch.setattr(f"{captures}.holds", lambda self: True)
    monkeypatch.setattr(f"{captures}.changes", lambda self, scope: [])


def test_a_missing_guard_is_an_error_that_names_the_leaf_its_values_and_the_variable(blind):
    settings = types.SimpleNamespace(rate=2.5)

    def f(x):
        return {"kept": x, "scaled": [x * settings.rate]}

    jitted = fdbr.jit(f, check=1)
    jitted(X)
    settings.rate = 5.5
    with pytest.raises(fdbr.ImpureError) as raised:
        jitted(X)
    text = str(raised.value)
    assert "f (check=1)" in text
    assert (
        "leaf ['scaled'][0] at [0] is np.float64(2.5), and the function's own np.float64(5.5)"
        in text
    )
    assert "No guard watches settings.rate: step 0 of the trace (multiply) has 2.5" in text
    assert "the function reads 5.5 now" in text


def test_a_branch_that_a_missing_guard_decides_is_named_by_its_step(blind):
    settings = types.SimpleNamespace(up=True)
    jitted = fdbr.jit(lambda x: x + 1 if settings.up else x * 2, check=1)
    jitted(X)
    settings.up = False
    with pytest.raises(fdbr.ImpureError, match="step 0 is multiply now, and add in the trace"):
        jitted(X)


def test_every_nth_call_is_compared(blind):
    settings = types.SimpleNamespace(rate=2.5)
    jitted = fdbr.jit(lambda x: x * settings.rate, check=3)
    jitted(X)
    settings.rate = 5.5
    jitted(X)
    for _ in range(2):
        with pytest.raises(fdbr.ImpureError, match=r"check=3"):
            jitted(X)
        jitted(X), jitted(X)


def test_the_function_runs_once_more_only_in_calls_that_are_compared(capsys):
    def f(x):
        print("ran")
        return x * 2

    jitted = fdbr.jit(f, check=2)
    for expected in (1, 1, 0, 1, 0, 1):
        jitted(X)
        assert capsys.readouterr().out == "ran\n" * expected


def test_callbacks_are_called_once():
    seen = []

    def f(x):
        fdbr.debug.callback(lambda value: seen.append(float(value)), x.sum())
        return x * 2

    jitted = fdbr.jit(f, check=1)
    for _ in range(3):
        jitted(X)
    assert seen == [2.0] * 3


def test_calls_that_run_the_function_itself_are_not_compared():
    import time

    jitted = fdbr.jit(lambda x: x * time.perf_counter(), check=1)
    for _ in range(3):
        jitted(X)
    assert jitted.report().eager == 3


def test_results_and_cotangents_are_compared_where_the_function_is_differentiated(blind):
    settings = types.SimpleNamespace(rate=2.5)
    jitted = fdbr.jit(lambda x: (x * settings.rate).sum(), check=1)
    gradient = fdbr.grad(jitted)
    assert (gradient(X) == 2.5).all()
    settings.rate = 5.5
    with pytest.raises(fdbr.ImpureError, match=r"No guard watches settings\.rate"):
        gradient(X)


def test_a_pullback_that_differs_alone_is_named(monkeypatch):
    jitted = fdbr.jit(lambda x: ops.sin(x).sum(), check=1)
    assert np.allclose(fdbr.grad(jitted)(X), np.cos(X))
    spread = "fdbr.compiler.engine.pullback.Differentiated._spread"
    monkeypatch.setattr(spread, lambda self, partition, found: [2 * ct for ct in found])
    with pytest.raises(RuntimeError, match=r"the compiled result of the pullback of the function"):
        fdbr.grad(jitted)(X)


def test_compiled_code_that_does_not_give_what_was_traced_is_a_defect(monkeypatch):
    jitted = fdbr.jit(lambda x: ops.sin(x), check=1)
    jitted(X)
    published = "fdbr.compiler.engine.jitted.published"
    monkeypatch.setattr(published, lambda outs, leaves: [2 * out for out in outs])
    other = np.ones(4)
    with pytest.raises(RuntimeError, match="defect of fdbr") as raised:
        jitted(other)
    assert not isinstance(raised.value, fdbr.ImpureError)


def test_a_function_that_raises_where_its_trace_does_not_is_an_error(blind):
    settings = types.SimpleNamespace(bad=False)

    def f(x):
        if settings.bad:
            raise ValueError("bad settings")
        return x * 2

    jitted = fdbr.jit(f, check=1)
    jitted(X)
    settings.bad = True
    with pytest.raises(fdbr.ImpureError, match="raises ValueError: bad settings") as raised:
        jitted(X)
    assert isinstance(raised.value.__cause__, ValueError)


def test_donated_arguments_are_copied_before_they_are_overwritten():
    def step(state, x):
        return {"w": state["w"] * 0.5 + x}, state["w"].sum()

    jitted = fdbr.jit(step, check=1, donate_argnums=0)
    state, desired = {"w": np.ones(3)}, {"w": np.ones(3)}
    for _ in range(5):
        old = state
        state, _ = jitted(state, X)
        desired, _ = step(desired, X)
        assert (state["w"] == desired["w"]).all()
        with pytest.raises(fdbr.DonatedError):
            old["w"] + 1


def test_a_batch_from_outside_runs_the_function_itself():
    jitted = fdbr.jit(lambda x: ops.sin(x) * 2, check=1)
    batch = np.stack([X, 2 * X])
    assert np.array_equal(fdbr.vmap(jitted)(batch), np.sin(batch) * 2)
    assert fdbr.jit(fdbr.vmap(jitted), check=1)(batch).shape == (2, 3)


def test_nan_equals_nan_and_rounding_is_no_difference():
    x = np.array([np.nan, np.inf, 1e-300])
    jitted = fdbr.jit(lambda x: ops.log(x) * 2, check=1)
    for _ in range(3):
        jitted(x)
    ill = fdbr.jit(lambda x: (x * 1e8).sum() - (x[::-1] * 1e8).sum(), check=1)
    for i in range(5):
        ill(np.random.default_rng(i).normal(size=1000))


def test_programs_with_collectives_are_not_compared(monkeypatch):
    runs = []

    def f(x):
        runs.append(1)
        return x * 2

    jitted = fdbr.jit(f, check=1)
    jitted(X)
    (trace,) = next(iter(jitted._cache.specializations.values())).traces
    trace.meets = True
    before = len(runs)
    jitted(X)
    assert len(runs) == before
    assert isinstance(trace, CompiledTrace)


@pytest.mark.parametrize(("bad", "error", "text"), [
    (-1, ValueError, "check must be at least 0, got -1"),
    (1.5, TypeError, "check must be an integer, got float 1.5"),
    (True, TypeError, "check must be an integer, got bool True"),
    ("often", TypeError, "check must be an integer, got str"),
])  # fmt: skip
def test_other_values_of_check_are_errors(bad, error, text):
    with pytest.raises(error, match=re.escape(f"fdbr.jit: {text}")):
        fdbr.jit(lambda x: x, check=bad)


def test_zero_and_none_mean_never_unless_the_environment_says_so(monkeypatch):
    assert type(fdbr.jit(lambda x: x)) is type(fdbr.jit(lambda x: x, check=0))
    monkeypatch.setenv("FDBR_CHECK_JIT", "2")
    assert type(fdbr.jit(lambda x: x)) is sanitizer.Checked
    assert type(fdbr.jit(lambda x: x, check=0)) is not sanitizer.Checked
    monkeypatch.setenv("FDBR_CHECK_JIT", "often")
    with pytest.raises(ValueError, match="FDBR_CHECK_JIT must be a number of calls, got 'often'"):
        fdbr.jit(lambda x: x)


def _doubled(x):
    return x * 2


def test_a_pickled_copy_is_checked_too():
    copy = pickle.loads(pickle.dumps(fdbr.jit(_doubled, check=4)))
    assert type(copy) is sanitizer.Checked
    assert copy._every == 4


def test_the_pullback_of_what_depends_on_some_arguments_alone_is_compared():
    checked = fdbr.jit(lambda x, y: (x * 2.0, y * 3.0), check=1)
    gradients = fdbr.grad(lambda x, y: checked(x, y)[0], (0, 1))(2.0, 5.0)
    assert gradients == (2.0, 0.0)
    only_one = fdbr.jit(lambda x, y: x * 2.0 + (y > 0), check=1)
    assert fdbr.grad(only_one, (0, 1))(2.0, 5.0) == (2.0, 0.0)


def test_numbers_of_python_may_stay_what_numpy_makes_scalars():
    jitted = fdbr.jit(lambda x: np.negative(x) + np.sin(x), check=1)
    for x in (0.5, 2, 1.5j):
        assert np.isclose(jitted(x), np.sin(x) - x)

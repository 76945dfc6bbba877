"""How a jitted function is called: as what, from where, how often, and when it fails."""

import copy
import functools
import multiprocessing
import operator
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import fdbr
from compiler.comparing import assert_as_eager, assert_same
from fdbr import nn, ops, train

X = np.array([1.0, -2.0, 3.0])


def count(jitted):
    return len(jitted.report().traces)


# --- errors -------------------------------------------------------------------------


def test_an_error_in_a_replay_is_that_of_the_function():
    def f(a, b):
        return np.linalg.solve(a, b)

    jitted = fdbr.jit(f)
    good, bad = np.eye(3), np.zeros((3, 3))
    for _ in range(2):
        assert jitted(good, X).tolist() == X.tolist()
        with pytest.raises(np.linalg.LinAlgError) as found:
            jitted(bad, X)
        with pytest.raises(np.linalg.LinAlgError) as desired:
            f(bad, X)
        assert str(found.value) == str(desired.value)
    assert count(jitted) == 1
    assert "a replay raised LinAlgError" in str(jitted.report())


def test_an_error_in_the_function_leaves_nothing_half_recorded():
    def f(x, fail):
        y = x * 2
        if fail:
            raise KeyError("no")
        return y

    jitted = fdbr.jit(f)
    with pytest.raises(KeyError, match="no"):
        jitted(X, np.bool_(True))
    assert count(jitted) == 0
    assert_same(jitted(X, np.bool_(False)), X * 2)
    with pytest.raises(KeyError):
        jitted(X, np.bool_(True))
    assert_same(jitted(X, np.bool_(False)), X * 2)
    assert count(jitted) == 1


def test_an_error_that_the_function_catches_is_no_part_of_a_trace():
    def f(x):
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            return x * 0

    good, bad = np.eye(2), -np.eye(2)
    jitted = assert_as_eager(f, (bad,))
    assert count(jitted) == 0
    assert "cholesky raised an error, which the function caught" in str(jitted.report())
    jitted = assert_as_eager(f, (bad,), (good,), (bad,), (good,), (good,), (bad,))
    assert count(jitted) == 1


def test_a_decision_that_fails_and_is_caught_is_no_part_of_a_trace():
    def f(x):
        try:
            return x * int(x)
        except ValueError:
            return 0.0

    nan = float("nan")
    assert_as_eager(f, (nan,), (2.0,), (nan,), (2.0,), (3.5,), (nan,))


def test_errors_of_numpy_that_the_function_asks_for_are_raised_at_every_call():
    def f(x):
        with np.errstate(divide="raise"):
            return 1 / x

    jitted = fdbr.jit(f)
    for _ in range(2):
        assert_same(jitted(X), 1 / X)
        with pytest.raises(FloatingPointError):
            jitted(X * 0)
    assert "has NumPy raise errors" in str(jitted.report())


def test_warnings_that_the_function_switches_off_are_no_obstacle():
    def f(x):
        with np.errstate(divide="ignore"):
            return ops.log(x)

    jitted = assert_as_eager(f, (abs(X),), (abs(X) + 1,))
    assert count(jitted) == 1


def test_a_run_of_very_many_steps_is_not_recorded(monkeypatch):
    monkeypatch.setattr(sys.modules["fdbr.compiler.capture.tracers"], "_MOST", 100)

    def f(x, n):
        for _ in range(n):
            x = x * 1.5 - 1
        return x

    jitted = assert_as_eager(f, (X, 10), (X, 60), (X, 60), (X, 10))
    assert count(jitted) == 1
    assert "it takes more than 100 steps" in str(jitted.report())


def test_shape_errors_name_the_operation():
    jitted = fdbr.jit(lambda x, y: x + y)
    with pytest.raises(ValueError, match=r"fdbr\.ops\.add.*float64\[3\].*float64\[2\]"):
        jitted(X, X[:2])


UNTRACEABLE = {
    "an attribute": lambda x: x * len(x.strides),
    "a key of a dict": lambda x: x * {1.0: 2.0, -2.0: 3.0, 3.0: 4.0}.get(x.max(), 5.0),
    "a type": lambda x: x * (type(x) is np.ndarray or {}["no array"]),
}


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_an_error_that_the_function_raises_only_when_it_is_traced_is_none(name):
    f = UNTRACEABLE[name]
    jitted = fdbr.jit(f)
    for x in (X, 2 * X, X):
        assert np.array_equal(jitted(x), f(x))
    report = jitted.report()
    assert (len(report.traces), report.eager) == (0, 3)
    assert "a run of it that is traced raises" in str(report)


@pytest.mark.unchecked
def test_so_it_is_where_the_function_is_differentiated_from_outside():
    def f(x):
        return (x * len(x.strides)).sum() if type(x) is np.ndarray else (x * 3).sum()

    def fails_in_programs(x):
        return x.sum() * (1.0 if "Capture" not in type(x).__name__ else {}["captured"])

    for g in (f, fails_in_programs):
        assert np.array_equal(fdbr.grad(fdbr.jit(g))(X), fdbr.grad(g)(X))


def test_what_has_been_printed_is_not_printed_again_for_an_error(capsys):
    def fails(x):
        fdbr.debug.print("{}", x.sum())
        return x.nonsense

    with pytest.raises(AttributeError, match="nonsense"):
        fdbr.jit(fails)(X)
    assert capsys.readouterr().out == "2.0\n"


WEAK = {
    "swish": ops.swish, "squareplus": ops.squareplus, "celu": ops.celu, "elu": ops.elu,
    "soft_shrink": ops.soft_shrink, "hard_shrink": ops.hard_shrink, "softplus": ops.softplus,
    "pairwise_distance": lambda x, n: ops.pairwise_distance(x, x, n),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAK)
@pytest.mark.parametrize("dtype", ["float16", "float32", "bool"])
def test_numbers_of_python_are_weak_beside_arrays_whatever_is_taken_apart(name, dtype):
    f = WEAK[name]
    for x in (np.array([0.5, 1.5, 0.0], dtype), np.ones(3000, dtype)):
        for number in (1.5, 2):
            try:
                desired = f(x, number) * 1
            except (TypeError, ValueError):  # of truth values
                continue
            jitted = fdbr.jit(lambda x, n: f(x, n) * 1)
            found = [jitted(x, number) for _ in range(2)]
            assert found[0].dtype == found[1].dtype == desired.dtype
            assert np.allclose(found[0], desired, rtol=1e-2 if dtype == "float16" else 1e-6)
            assert np.array_equal(*found)


# --- how it is called ---------------------------------------------------------------


@fdbr.jit
def doubled(x):
    """Twice as much."""
    return 2 * x


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def plain(self, x):
        return x * self.factor

    @fdbr.jit
    def decorated(self, x):
        return x * self.factor

    def __call__(self, x):
        return x - self.factor


def test_methods_callable_objects_and_partial_functions():
    scale = Scale(3.0)
    for f in (scale.plain, scale.decorated, scale, functools.partial(operator.mul, 3.0)):
        jitted = f if hasattr(f, "report") else fdbr.jit(f)
        for x in (X, -X):
            assert_same(jitted(x), (x - 3.0) if f is scale else 3.0 * x)
        assert [kept.runs for kept in jitted.report().traces] == [1]


def test_a_decorated_method_knows_its_instance():
    one, other = Scale(2.0), Scale(5.0)
    for _ in range(2):
        assert one.decorated(1.0) == 2.0
        assert other.decorated(1.0) == 5.0
    assert Scale.decorated(one, 1.0) == 2.0


def test_methods_of_frozen_classes_take_their_instance_as_an_argument():
    @fdbr.frozen
    class Model:
        w: Any

        @fdbr.jit
        def __call__(self, x):
            return self.w @ x

        @classmethod
        @fdbr.jit
        def made(cls, w):
            return cls(w * 2)

        @staticmethod
        @fdbr.jit
        def twice(x):
            return 2 * x

    for w in (X, -X):
        assert Model(w)(X) == w @ X
        assert Model.made(w).w.tolist() == (2 * w).tolist()
        assert Model(w).twice(X).tolist() == (2 * X).tolist()
    assert count(Model.__call__) == 1


def test_it_looks_like_the_function():
    assert doubled.__name__ == "doubled"
    assert doubled.__doc__ == "Twice as much."
    assert doubled.__wrapped__(2) == 4
    assert repr(fdbr.jit(lambda x: x)).startswith("<fdbr.jit of test_it_looks")


def test_pickling_leaves_the_traces_behind():
    doubled(X)
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.deepcopy(doubled) is doubled
    sine = fdbr.jit(np.sin, max_traces=2)
    sine(X)
    again = pickle.loads(pickle.dumps(sine))
    assert count(again) == 0
    assert_same(again(X), np.sin(X))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(fdbr.jit(lambda x: x))


def test_it_goes_to_other_processes():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(fdbr.jit(np.negative), [X[0], X[1]]) == [-X[0], -X[1]]


def test_jitted_functions_are_static_leaves_and_fields():
    @fdbr.frozen
    class Net:
        w: Any
        activation: Any = fdbr.static()

    act = fdbr.jit(ops.tanh)
    f = lambda net, x, g: g(net.activation(net.w * x))
    assert_as_eager(f, (Net(X, act), X, act), (Net(-X, act), X, act))


def test_threads_may_call_one_jitted_function_at_once():
    def f(x, n):
        total = x * 0
        for i in range(n):
            total = total + x if x[0] > i else total - x
        return total

    jitted = fdbr.jit(f)
    calls = [(np.array([float(a), 1.0]), n) for a in range(4) for n in range(4)]
    wrong = []
    start = threading.Barrier(4)

    def work(shift):
        start.wait()
        for i in range(200):
            x, n = calls[(i + shift) % len(calls)]
            if not np.array_equal(jitted(x, n), f(x, n)):
                wrong.append((x, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- bounds and reports -------------------------------------------------------------


def test_kinds_of_arguments_that_were_used_least_recently_are_dropped():
    jitted = fdbr.jit(lambda x: x * 2, max_traces=3)
    for n in (1, 2, 3, 1, 4, 1, 5):
        assert_same(jitted(np.ones((2,) * n)), np.full((2,) * n, 2.0))
    kinds = {kept.arguments[0].count("2"): kept.runs for kept in jitted.report().traces}
    assert kinds == {1: 2, 4: 0, 5: 0}


def test_the_report_says_what_was_recorded_and_why():
    @fdbr.jit
    def f(x, flag):
        return x if x.sum() > 0 else -x

    for x in (X, -X, X, X):
        f(x, True)
    report = f.report()
    text = str(report)
    assert text.splitlines()[0].endswith("f: 2 traces")
    assert "for float64[3], the first call with arguments of this signature" in text
    assert "guard 0 was False for the first time" in text
    assert "replayed 2 times" in text
    assert report.eager == 0
    assert report.traces[0].steps[0] >= 2


def test_the_report_of_a_function_that_was_not_called_is_empty():
    assert str(fdbr.jit(np.sin).report()) == "sin: 0 traces"


def test_programs_are_printed_as_they_are_run():
    doubled(np.ones(2))
    text = str(doubled.programs()[-1])
    assert text.startswith("program doubled(v0: float64[2])")
    assert "multiply(2, v0)" in text


# --- training -----------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [
    train.optim.sgd(0.1), train.optim.momentum_sgd(0.1), train.optim.adam(0.1),
], ids="sgd momentum adam".split())  # fmt: skip
def test_a_training_step_with_its_integer_counters_is_recorded_once(optimizer):
    def loss(model, batch):
        out = model(batch["x"])
        return ops.softmax_cross_entropy(out, batch["y"]), {
            "accuracy": ops.accuracy(out, batch["y"])
        }

    def step(state, batch):
        model, opt = state
        (value, metrics), grads = fdbr.value_and_grad(loss, has_aux=True)(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value, **metrics}

    keys = fdbr.random.split(fdbr.random.key(0), 3)
    model = nn.Sequential(nn.Linear.init(keys[0], 5, 4), ops.relu, nn.Linear.init(keys[1], 4, 3))
    batch = {"x": fdbr.random.normal(keys[2], (6, 5)), "y": np.array([0, 1, 2, 0, 1, 2])}
    jitted = fdbr.jit(step)
    ours = theirs = (model, optimizer.init(model))
    for _ in range(4):
        ours, metrics = jitted(ours, batch)
        theirs, desired = step(theirs, batch)
        assert_same(metrics, desired, ulps=64)
        assert_same(ours, theirs, ulps=64)
    assert [kept.runs for kept in jitted.report().traces] == [3]


def test_fit_takes_a_jitted_step():
    def step(w, batch):
        value, slope = fdbr.value_and_grad(lambda w: ((batch["x"] @ w - batch["y"]) ** 2).mean())(w)
        return w - 0.1 * slope, {"loss": value}

    data = {"x": np.arange(24.0).reshape(8, 3) / 24, "y": np.arange(8.0) / 8}
    batches = train.Batches(data, size=4, key=fdbr.random.key(0))
    ends = [
        list(train.fit(s, np.zeros(3), batches, epochs=3))[-1].state for s in (step, fdbr.jit(step))
    ]
    assert_same(ends[1], ends[0], ulps=32)


def test_keys_draw_the_same_numbers_as_ever():
    def f(key, x):
        one, other = fdbr.random.split(key)
        noise = fdbr.random.normal(one, x.shape) + fdbr.random.uniform(other, (3,), minval=x.min())
        return x + noise, fdbr.random.bernoulli(one, 0.5, (4,)), fdbr.random.permutation(other, 5)

    keys = [fdbr.random.key(i) for i in range(3)]
    jitted = assert_as_eager(f, *[(key, X) for key in keys], (fdbr.random.fold_in(keys[0], 7), X))
    assert count(jitted) == 1


def test_an_integer_may_be_folded_into_a_key():
    def f(key, step):
        return fdbr.random.normal(fdbr.random.fold_in(key, step), (3,))

    key = fdbr.random.key(0)
    assert_as_eager(f, *[(key, step) for step in range(4)])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "complex64"])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "max", "prod", "logsumexp"])
def test_reductions_to_one_number_are_of_the_type_they_have_in_eager_mode(name, dtype):
    if dtype == "complex64" and name == "max":
        pytest.skip("complex numbers have no order")
    x, f = np.ones((3, 4), dtype), getattr(fdbr.ops, name)
    found, desired = fdbr.jit(f)(x), f(x)
    assert type(found) is type(desired)
    assert found == desired


def test_the_report_says_which_axes_have_had_several_sizes_and_share_machine_code():
    jitted = fdbr.jit(lambda w, x: np.sum(np.tanh(x @ w) ** 2))
    for length in (3, 5, 8):
        jitted(np.ones((3, 2)), np.ones((length, 3)))
    text = str(jitted.report())
    assert "axis 0 of argument 2: sizes 3, 5, 8\n" in text
    assert "axis 1 of argument 2" not in text
    assert "argument 1" not in text
    assert "these sizes share machine code: of 1 kernel for the last one" in text

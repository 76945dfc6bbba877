"""What a trace notes: steps, decisions, and what comes from elsewhere."""

import numpy as np
import pytest
from compiler.comparing import assert_as_eager, assert_same, distance

import fdbr
from fdbr import ops, tree
from fdbr.backends.cpu.exec.programs import generate
from fdbr.compiler.capture import tracers
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.ir.interpreter import GuardFailure, interpret
from fdbr.compiler.ir.program import Guard
from fdbr.compiler.ir.python_numbers import apply, exact
from fdbr.core.primitive import dispatch, registry

X = np.array([1.0, -2.0, 3.0])


def recorded(f, *leaves):
    return capture(lambda traced: [f(*traced)], f, leaves)


def test_a_program_has_a_step_for_each_operation_on_what_depends_on_the_arguments():
    found = recorded(lambda x: ops.sin(x) * np.cos(2.0) + np.ones(3).sum(), X)
    assert [step.primitive.name for step in found.program.steps] == ["sin", "multiply", "add"]
    assert_same(found.result, [np.sin(X) * np.cos(2.0) + 3.0], ulps=0)


def test_both_ways_to_run_a_program_give_the_same():
    def f(x, n):
        return ops.linalg.svd(ops.reshape(x[:n], (1, -1)) * n)[1] if x[0] > 0 else -x

    found = recorded(f, X, 2)
    run = generate(found.program)
    for x, n in ((X, 2), (X * 2, 2)):
        desired = [f(x, n)]
        assert_same(interpret(found.program, [x, n]), desired, ulps=0)
        assert_same(list(run(x, n)), desired, ulps=0)
    for leaves, index, answer in (((-X, 2), 0, False), ((X, 3), 1, 3)):
        for way in (lambda leaves: interpret(found.program, leaves), lambda leaves: run(*leaves)):
            with pytest.raises(GuardFailure) as miss:
                way(list(leaves))
            assert (miss.value.index, miss.value.answer) == (index, answer)


def test_a_guard_stands_before_what_is_done_because_of_its_answer():
    found = recorded(lambda x: ops.log(x) if (x > 0).all() else x, abs(X))
    kinds = [type(step) is Guard for step in found.program.steps]
    assert kinds == [False, False, True, False]
    assert found.answers == (True,)


def test_bounds_of_slices_and_other_settings_become_plain():
    found = recorded(lambda x, n, e: ops.layer_norm(x[None, :n], eps=e), X, 2, 1e-5)
    params = [step.params for step in found.program.steps if hasattr(step, "params")]
    assert params[0]["key"] == (None, slice(None, 2))
    assert "traced" not in str(params)
    assert found.answers == (2, 1e-5)


@pytest.mark.parametrize("f", [
    lambda x, n: ops.layer_norm(x[None], eps=n * 1e-3),
    lambda x, n: ops.dropout(x, n / 4, key=fdbr.random.key(0)),
    lambda x, n: ops.sum(x[None], axis=n - 1),
    lambda x, n: ops.full((n, 2), x[0]),
    lambda x, n: ops.full(n, x[0]),
    lambda x, n: np.split(np.concatenate([x, x]), n + 1),
    lambda x, n: np.array_split(x, n),
    lambda x, n: np.tensordot(np.outer(x, x), np.outer(x, x), n - 1),
    lambda x, n: np.delete(x, n),
    lambda x, n: np.insert(x, n, 7.0),
    lambda x, n: np.arange(n) + x[0],
    lambda x, n: x[[n, 0]],
    lambda x, n: ops.pad(x, n),
    lambda x, n: ops.one_hot(np.array([0, 1]), n + 1) * x[0],
    lambda x, n: ops.linalg.vector_norm(x, ord=n),
    lambda x, n: np.roll(x, n) + np.tile(x, n)[:3],
])  # fmt: skip
def test_parameters_of_operations_may_come_from_arguments(f):
    assert_as_eager(f, (X, 1), (X, 2), (-X, 1), (-X, 2))


def test_an_array_from_elsewhere_is_kept_as_it_was_when_it_was_used():
    w = np.ones(3)
    found = recorded(lambda x: x * w, X)
    (constant,) = (o for o in found.program.steps[0].operands if isinstance(o, np.ndarray))
    assert not np.shares_memory(constant, w)
    assert not constant.flags.writeable
    (pair,) = found.constants.shared()
    assert pair[0] is w
    assert found.constants.shared() == ()  # they are handed over


@pytest.mark.parametrize("kept", [None, "whole", "view", "other"])
def test_a_view_and_its_owner_are_shared_only_if_others_know_one_of_them(kept):
    known = []

    def f(x):
        arrays = {"whole": np.ones((3, 3))}
        arrays["view"], arrays["other"] = arrays["whole"][0], arrays["whole"][1:]
        known.extend(array for name, array in arrays.items() if name == kept)
        return x * arrays["whole"] + x * arrays["view"] + (x * arrays["other"]).sum()

    shared = [pair[0].shape for pair in recorded(f, X).constants.shared()]
    assert len(shared) == (0 if kept is None else 3)


def test_arrays_that_only_the_function_knows_are_not_shared():
    whole = np.ones((3, 4))

    def f(x):
        mine = np.ones((4, 3))
        return x * mine[1] + x * np.frombuffer(bytearray(24)) + whole[:, 2] * x

    (pair,) = [p for p in recorded(f, X).constants.shared() if p[0].base is whole]
    assert pair[1].tolist() == [1.0, 1.0, 1.0]


def test_layouts_of_constants_stay():
    w = np.asfortranarray(np.ones((3, 3)))
    found = recorded(lambda x: x * w, X)
    (constant,) = (o for o in found.program.steps[0].operands if isinstance(o, np.ndarray))
    assert constant.flags.f_contiguous


@pytest.mark.parametrize(("f", "words"), [
    (lambda x: fdbr.grad(lambda y: recorded_inside(y, X))(2.0), ""),
    (lambda x: _caught(lambda: ops.reshape(x, (7,)), x), "reshape raised an error"),
    (lambda x: _caught(lambda: int(x[0] / 0), x), r"int\(\) raised an error"),
], ids=["none", "shapes", "decision"])  # fmt: skip
def test_obstacles_are_told(f, words):
    with np.errstate(all="ignore"):
        found = recorded(f, X)
    assert words in found.obstacle.replace("(", r"\(").replace(")", r"\)")
    assert bool(found.obstacle) is bool(words)


def recorded_inside(y, x):
    found = recorded(lambda x: (x * y).sum(), x)
    assert "it uses a traced value of grad" in found.obstacle
    return found.result[0]


def _caught(attempt, otherwise):
    try:
        return attempt()
    except (ValueError, OverflowError):
        return otherwise


def test_stop_gradient_and_batches_work_through_a_trace_inside_of_a_transformation():
    stopped = lambda w: fdbr.jit(lambda x: fdbr.stop_gradient(x * w) * x)(2.0)
    assert fdbr.grad(stopped)(3.0) == 0.0
    batch = lambda w: fdbr.jit(fdbr.vmap(lambda x: x * w if x * w > 0 else -x * w))(X).sum()
    assert fdbr.grad(batch)(3.0) == 6.0
    assert fdbr.jvp(batch, (3.0,), (1.0,)) == (18.0, 6.0)


def test_integers_of_python_are_computed_by_python_and_all_else_by_numpy():
    add, less = registry["add"], registry["less"]
    assert exact(add, [int, bool]) is not None
    assert exact(add, [int, float]) is exact(add, [np.int64, int]) is None
    assert apply(add, (2**70, True), {}) == 2**70 + 1
    assert apply(less, (2**70, 2**71), {}) is True
    assert apply(add, (1, 2.5), {}) == dispatch(add, (1, 2.5), {}) == 3.5


def test_values_are_deleted_after_their_last_use():
    found = recorded(lambda x: ops.sin(ops.cos(x)) + 1, X)
    source = generate(found.program).source
    assert source.count("del ") == 3


def test_the_distance_of_these_tests_counts_units_in_the_last_place():
    one = np.array([1.0, 1e-3])
    assert distance(one, one) == 0
    assert distance(one + np.array([np.spacing(1.0), 0]), one) == 1
    assert distance(one * [1, 1 + 1e-12], one) < 8
    assert distance(np.array([np.nan]), np.array([np.nan])) == 0
    assert distance(np.array([np.inf]), np.array([1.0])) == np.inf
    assert distance(np.array([1.0]), np.array([np.nan])) == np.inf
    assert distance(np.array([1]), np.array([2])) == np.inf
    assert distance(np.float32(1.0000001), np.float32(1)) == 1


def _chained(x, y):
    for _ in range(40):
        x = ops.sin(x * 0.5) + y
    return x


def _asked(x, y):
    z = x * 2 + y
    return z if isinstance(z, np.ndarray) and z.shape == x.shape and ops.sum(z) > 0 else -z


def _dropped(x, y):
    _ = x / 0.0
    return x.astype("float32") * y, (x > y) * 1, x


def _updated(x, y):
    slope = fdbr.grad(lambda x: ops.sum(ops.tanh(x * y) ** 2))(x)
    moments = 0.9 * y + 0.1 * slope
    return x - 0.1 * moments / (ops.sqrt(slope * slope) + 1e-8), moments


@pytest.mark.parametrize("f", [_chained, _asked, _dropped, _updated])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elementwise_steps_that_are_put_off_give_what_they_give(f, dtype, monkeypatch):
    monkeypatch.setattr(tracers, "_LARGE", 1)
    x, y = np.linspace(-1, 2, 12).reshape(3, 4).astype(dtype), np.ones((3, 4), dtype)
    with np.errstate(all="ignore"):
        expected = tree.leaves(f(x, y))
        found = capture(lambda leaves: tree.leaves(f(*leaves)), f, [x, y])
        again = fdbr.vmap(fdbr.jit(f))(x, y) if f is _chained else None
    for one, other in zip(found.result, expected, strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    if again is not None:
        np.testing.assert_allclose(again, expected[0], rtol=1e-5)

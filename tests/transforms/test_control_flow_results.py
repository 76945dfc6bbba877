"""What vmap makes of the results of several paths, and what it says when it cannot."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr

POINTS = np.array([-2.3, 0.41, 1.7, -0.45, 0.72, 3.1, 0.41])


def branches(x):
    if x > 1:
        return x**2
    elif x > 0:
        return np.sin(x)
    return x * x * x


def powers(x):
    out = 1.0
    for i in range(int(abs(x) * 3)):
        out = out * x + i
    return out * x


# --- results ------------------------------------------------------------------------


def test_a_number_takes_the_dtype_of_the_other_examples():
    x = np.array([-1, 2], "float32")
    for constant in (0.0, 0, False):
        out = fdbr.vmap(lambda x, c=constant: x if x > 0 else c)(x)
        assert out.dtype == np.float32
        assert out.tolist() == [0, 2]
    total = lambda c: fdbr.vmap(lambda x: x if x > 0 else c)(x).sum()
    assert fdbr.value_and_grad(total)(0.5) == (2.5, 1.0)
    out, slope = fdbr.jvp(lambda c: fdbr.vmap(lambda x: x if x > 0 else c)(x), (0.5,), (1.0,))
    assert out.dtype == slope.dtype == np.float32  # a traced number is as weak
    assert fdbr.vmap(lambda x: 1 if x > 0 else 2.5)(x).tolist() == [2.5, 1.0]


def test_constants_on_every_path():
    sign = lambda x: 1 if x > 0 else -1 if x < 0 else 0
    found = fdbr.vmap(sign)(np.array([3.0, -2.0, 0.0, -1.0]))
    assert found.tolist() == [1, -1, 0, -1]
    assert found.dtype == np.dtype(int)


def test_results_of_several_paths_go_where_out_axes_says():
    f = lambda x: {"y": np.ones((2, 3)) * x, "n": 1} if x > 0 else {"y": np.zeros((2, 3)), "n": 2}
    out = fdbr.vmap(f, out_axes={"y": -1, "n": 0})(POINTS)
    assert out["y"].shape == (2, 3, 7)
    assert (out["y"][1, 1] == np.maximum(POINTS, 0)).all()
    assert (out["n"] == np.where(POINTS > 0, 1, 2)).all()


def test_the_batch_need_not_be_along_axis_0():
    f = lambda x, d: x.sum() * d["k"] if x[0] > 0 else d["k"]
    x = np.array([[1.0, -2.0, 3.0], [1.0, 1.0, 1.0]])
    out = fdbr.vmap(f, (1, {"k": 0, "n": None}))(x, {"k": np.arange(3.0), "n": 1})
    assert out.tolist() == [0.0, 1.0, 8.0]


def test_an_empty_batch_counts_conditions_as_false():
    empty = np.empty(0)
    assert fdbr.vmap(branches)(empty).shape == (0,)
    assert fdbr.vmap(powers)(empty).shape == (0,)
    assert fdbr.vmap(fdbr.grad(branches))(empty).shape == (0,)
    assert fdbr.vmap(fdbr.vmap(branches))(np.empty((3, 0))).shape == (3, 0)
    assert fdbr.vmap(fdbr.vmap(branches))(np.empty((0, 3))).shape == (0, 3)


def test_an_empty_batch_that_would_loop_forever_is_an_error():
    def climb(x):
        while not x > 0:
            x = x + 1
        return x

    with pytest.raises(
        RuntimeError, match=r"vmap: .*climb does not come to an end on a batch of size"
    ):
        fdbr.vmap(climb)(np.empty(0))


def test_it_runs_once_for_each_way_that_there_is():
    runs = []

    def f(x):
        runs.append(x.shape)
        return x if x > 0 else -x

    fdbr.vmap(f)(np.ones(1000))
    assert len(runs) == 1
    runs.clear()
    fdbr.vmap(f)(np.where(np.arange(1000) % 3, 1.0, -1.0))
    assert len(runs) == 3  # once until they disagree, once for either part


# --- errors -------------------------------------------------------------------------


def test_an_exception_on_one_path_is_the_callers():
    def checked(x):
        if x < 0:
            raise KeyError("negative")
        return np.sqrt(x)

    with pytest.raises(KeyError, match="negative"):
        fdbr.vmap(checked)(np.array([1.0, -1.0]))
    assert fdbr.vmap(checked)(np.array([1.0, 4.0])).tolist() == [1.0, 2.0]
    with pytest.raises(KeyError, match="negative"):
        fdbr.grad(lambda x: fdbr.vmap(checked)(x).sum())(np.array([1.0, -1.0]))


def test_the_number_of_paths_is_bounded():
    x = np.arange(10.0)
    by_ten = lambda x: int(x) * 2.0
    assert fdbr.vmap(by_ten, max_paths=10)(x).tolist() == (2 * x).tolist()
    with pytest.raises(
        RuntimeError,
        match=r"fdbr.vmap: the examples of .* take more than 9 paths through its control flow; "
        "write it with ops.where, or raise max_paths",
    ):
        fdbr.vmap(by_ten, max_paths=9)(x)
    with pytest.raises(RuntimeError, match="more than 1 paths"):
        fdbr.vmap(branches, max_paths=1)(POINTS)
    assert fdbr.vmap(branches, max_paths=1)(2 * np.ones(3)).tolist() == [4.0] * 3
    with pytest.raises(TypeError, match="max_paths must be an integer, got str"):
        fdbr.vmap(by_ten, max_paths="many")
    with pytest.raises(ValueError, match="max_paths must be at least 1, got 0"):
        fdbr.vmap(by_ten, max_paths=0)


def test_a_batch_takes_at_most_as_many_paths_as_it_has_examples():
    x = np.arange(50.0)
    f = lambda x: sum((int(x * n) * 1.0 for n in range(1, 6)), 0.0)  # a question at every turn
    assert fdbr.vmap(f, max_paths=50)(x).tolist() == [f(one) for one in x]


def test_the_bound_holds_for_custom_functions_too():
    f = fdbr.custom_vjp(
        lambda x: int(x) * x, fwd=lambda x: (int(x) * x, x), bwd=lambda x, ct: (ct * int(x),)
    )
    x = np.arange(6.0)
    both = lambda most: fdbr.grad(lambda x: fdbr.vmap(f, max_paths=most)(x).sum())
    assert both(6)(x).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match=r"custom_vjp\(<lambda>\) take more than 5 paths"):
        both(5)(x)


def test_paths_must_give_results_of_one_kind():
    with pytest.raises(
        ValueError, match=r"returns trees of different structure for different examples: .*a.*b"
    ):
        fdbr.vmap(lambda x: {"a": x} if x > 0 else {"b": x})(POINTS)
    with pytest.raises(ValueError, match="returns trees of different structure"):
        fdbr.vmap(lambda x: x if x > 0 else None)(POINTS)
    with pytest.raises(
        ValueError,
        match=r"returns shapes \[\(\), \(2,\)\] for different examples at \['y'\]; results must",
    ):
        fdbr.vmap(lambda x: {"y": x if x > 0 else np.ones(2)})(POINTS)
    with pytest.raises(
        ValueError, match=r"out_axes is None for the result .* differs between examples"
    ):
        fdbr.vmap(lambda x: 1.0 if x > 0 else 2.0, out_axes=None)(POINTS)


def test_the_truth_of_several_elements_is_ambiguous():
    with pytest.raises(ValueError, match=r"ambiguous; use ops.any or ops.all"):
        fdbr.vmap(lambda row: row if row > 0 else -row)(np.ones((3, 2)))
    with pytest.raises(TypeError, match="is no index"):
        fdbr.vmap(lambda x: [1, 2][x])(np.ones(2))
    with pytest.raises(TypeError, match=r"float\(\) of"):
        fdbr.vmap(fdbr.grad(lambda x: float(x)))(POINTS)


# --- results on which a divided batch agrees --------------------------------------------


def branching(x, w):
    return (x if x > 0 else -2 * x), {"w": w, "twice": 2 * w, "number": 3.0, "name": "a", "x": None}


SHARED = {"w": None, "twice": None, "number": None, "name": None, "x": None}


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=5), st.floats())
def test_a_result_that_does_not_depend_on_the_batch_is_unbatched_after_a_branch(xs, w):
    xs, w = np.array(xs), np.array([w, 1.0])
    batched = fdbr.vmap(branching, (0, None), (0, SHARED))
    for f in (batched, fdbr.jit(batched)):
        for _ in range(2):
            y, shared = f(xs, w)
            assert np.array_equal(y, np.where(xs > 0, xs, -2 * xs))
            assert np.array_equal(shared["w"], w, equal_nan=True)
            assert np.array_equal(shared["twice"], 2 * w, equal_nan=True)
            assert (shared["number"], shared["name"], shared["x"]) == (3.0, "a", None)


def test_it_has_a_gradient():
    def loss(w):
        y, shared = fdbr.vmap(branching, (0, None), (0, SHARED))(np.array([1.0, -2.0]), w)
        return y.sum() + shared["twice"]

    assert fdbr.grad(loss)(3.0) == 2.0


@pytest.mark.parametrize("transformation", [lambda f: f, fdbr.jit])
def test_a_result_that_depends_on_the_branch_cannot_be_unbatched(transformation):
    def f(x, w):
        return (x, 2 * w) if x > 0 else (-x, w + 1)

    batched = transformation(fdbr.vmap(f, (0, None), (0, None)))
    xs = np.array([1.0, -2.0])
    assert batched(xs, np.array(1.0))[1] == 2.0  # where both branches say the same
    with pytest.raises(ValueError, match=r"out_axes is None for the result at \[1\] .* differs"):
        batched(xs, np.array(3.0))
    assert batched(np.abs(xs), np.array(3.0))[1] == 6.0
    other = fdbr.vmap(lambda x: (x, np.ones(2) if x > 0 else np.ones(3)), 0, (0, None))
    with pytest.raises(ValueError, match="differs between examples"):
        other(xs)

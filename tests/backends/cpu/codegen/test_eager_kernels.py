"""Kernels of arrays of all shapes, dtypes and layouts, and what is left to NumPy."""

import itertools
import logging
import math
import operator

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from ops.cases import CASES, few
from sharing import sampled
from sizes import use_kernels_from

import fdbr
from fdbr import ops
from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.codegen import eager_kernels
from fdbr.backends.cpu.codegen.math import functions
from fdbr.backends.cpu.library.reduce import reduce
from fdbr.backends.cpu.runtime import machine, pool
from fdbr.backends.cpu.tuning import TUNING

OPERATORS = {"add": operator.add, "mul": operator.mul, "sub": operator.sub, "div": operator.truediv}


@pytest.fixture
def small(monkeypatch):
    """Arrays of any size are large."""
    use_kernels_from(0, monkeypatch)
    monkeypatch.setattr(TUNING, "reduced_row", 1)
    monkeypatch.setattr(TUNING, "reduced_columns", 1)


@st.composite
def operands(draw):
    """Two or three arrays that broadcast, of any layouts and dtypes, numbers among them."""
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=1, max_side=40)
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found = []
    for shape in shapes.input_shapes:
        dtype = draw(st.sampled_from(["float32", "float64", "bool"]))
        x = (rng.normal(size=shape) * 4).astype(dtype)
        layout = draw(st.sampled_from(["C", "F", "steps", "turned", "one", "number"]))
        if layout == "F":
            x = np.asfortranarray(x)
        elif layout == "steps" and x.ndim:
            x = np.repeat(x, 2, axis=-1)[..., ::2]
        elif layout == "turned" and x.ndim:
            x = x[::-1]
        elif layout == "one" and x.ndim:
            x = np.broadcast_to(x.reshape(-1)[:1].reshape((1,) * x.ndim), shape)
        elif layout == "number" and x.ndim == 0:
            x = x.item()
        found.append(x)
    return found


@given(operands(), st.sampled_from(sorted(OPERATORS)))
@settings(max_examples=300)
def test_arithmetic_is_numpys_to_the_last_bit(values, name):
    def function(x, y, z):
        return OPERATORS[name](x + y, z)

    found = kernels.elementwise(name, function, values)
    numbers = sum(type(value) in (float, bool) for value in values)
    if found is None or numbers > 1:  # scalars, truth values alone, too many axes
        return
    with np.errstate(all="ignore"):
        desired = function(*values)
    assert found.dtype == desired.dtype
    assert found.shape == desired.shape
    assert np.array_equal(found, desired, equal_nan=True)


@given(
    st.integers(1, 60),
    st.one_of(st.integers(2, 40), st.integers(16, 300)),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
)
def test_rows_of_any_length_are_reduced(rows, columns, dtype, spoiled):
    x = np.random.default_rng(rows).normal(size=(rows, columns)).astype(dtype)
    if spoiled:
        x[0, 0], x[-1, -1] = np.nan, np.inf

    def function(x):
        kept = {"axis": (1,), "keepdims": True}
        return x.sum(**kept), x.max(**kept), x.min(**kept), x - x.mean(**kept)

    found = kernels.reduced("all", function, (1,), (x,))
    if found is None:
        assert max(rows, columns) < 16
        return
    with np.errstate(all="ignore"):
        for one, other in zip(found, function(x), strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(70, 30, 2, 30, 2), (40, 50, 60, 16), (3, 300, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_arrays_are_reduced_along_any_axes(shape, dtype):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    for number in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), number):
            tolerance = {"rtol": 1e-4 if dtype == "float32" else 1e-11, "atol": 1e-3}
            wide = np.sum(x, axis=axes, dtype=float)
            np.testing.assert_allclose(ops.sum(x, axis=axes), wide, **tolerance)
            np.testing.assert_array_equal(ops.max(x, axis=axes), np.max(x, axis=axes))


def test_a_large_array_reduced_along_no_axis_is_another_array():
    x = np.random.default_rng(0).normal(size=(600, 700))
    for function in (ops.max, ops.min, ops.sum):
        out = function(x, axis=())
        np.testing.assert_array_equal(out, x)
        assert not np.shares_memory(out, x)


def test_axes_that_are_reduced_one_after_the_other_lose_no_digits():
    x = np.random.default_rng(0).uniform(0, 1, (200_000, 3, 2)).astype("float32")
    np.testing.assert_allclose(ops.sum(x, axis=(0, 2)), x.sum(axis=(0, 2), dtype=float), rtol=1e-6)


def _reductions(axes):
    kept = {"axis": axes, "keepdims": True}

    def of(x, gain, shift):
        away = x - x.mean(**kept)
        square = (away * away).sum(**kept)
        exp = (np if isinstance(x, np.ndarray) else functions).exp
        powers = exp(x * gain - x.max(**kept))
        return (
            *(powers / powers.sum(**kept) + shift, (x * gain).sum(**kept), x.max(**kept)),
            *(x.min(**kept), (x * 1e-3 + 1).prod(**kept), away / (square + 1), square),
        )

    return of


def _about(axes):
    return lambda x, shift: ((x - shift) * x).sum(axis=axes, keepdims=True)


@pytest.mark.slow
@given(st.data(), st.sampled_from(["float32", "float64"]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_axes_are_reduced_with_operands_that_lack_some(data, dtype):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=70))
    axes = tuple(i for i in range(len(shape)) if data.draw(st.booleans()))
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    gone = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    shapes = (shape, data.draw(st.sampled_from([shape, kept, gone])), kept)
    values = [rng.normal(size=s).astype(dtype) for s in shapes]
    if data.draw(st.booleans()):
        values[0].flat[0], values[0].flat[-1] = np.nan, -np.inf
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(TUNING, "reduced_row", 2)
        patch.setattr(TUNING, "reduced_columns", 2)
        patch.setattr(reduce, "_CHUNK", 32)
        found = kernels.reduced("any", _reductions((1,)), axes, values)
        total = kernels.reduced("total", _about((1,)), axes, (values[0], values[2]))
        if found is None or total is None:  # too many axes, or nothing to reduce
            return
        wide = [value.astype(float) for value in values]
        desired = (*_reductions(axes)(*wide), _about(axes)(wide[0], wide[2]))
    for one, other in zip((*found, total), desired, strict=True):
        assert one.dtype == dtype
        assert one.shape == other.shape
        tolerance = 1e-4 if dtype == "float32" else 1e-11
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(3, 300, 40), (300, 40), (40, 300), (30, 3, 400), (70_001,)])
def test_reductions_have_the_same_bits_on_any_number_of_threads(shape, monkeypatch):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")

    def totals(x):
        return x.sum(axis=(1,), keepdims=True), (x * x).max(axis=(1,), keepdims=True)

    axes = {(3, 300, 40): (1,), (300, 40): (0,), (40, 300): (1,), (30, 3, 400): (0, 2)}
    for _ in range(2):
        eager_kernels._plans.clear()
        found = kernels.reduced("totals", totals, axes.get(shape, (0,)), (x,))
        monkeypatch.setattr(pool, "thread_count", lambda: 1)
        eager_kernels._plans.clear()
        alone = kernels.reduced("totals", totals, axes.get(shape, (0,)), (x,))
        monkeypatch.undo()
        assert [part.tobytes() for part in found] == [part.tobytes() for part in alone]


@pytest.mark.parametrize("columns", [4096, 70_001, 300_000])
def test_sums_of_long_rows_lose_no_digits(columns):
    x = np.random.default_rng(0).uniform(0, 1, (3, columns)).astype("float32")
    x[2, 7] = np.inf
    function = lambda x: (x.sum(axis=(1,), keepdims=True), x.mean(axis=(1,), keepdims=True))
    with np.errstate(all="ignore"):
        exact = function(x.astype(float))
    for one, other in zip(kernels.reduced("long", function, (1,), (x,)), exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-7)


@pytest.mark.parametrize("shape", [(4097, 64), (5003, 130), (2, 1030, 19)])
def test_sums_of_long_columns_lose_no_digits_in_panels_that_are_whole_or_not(shape):
    x = np.random.default_rng(0).uniform(0, 1, shape).astype("float32")
    x[..., -1, 7] = np.inf
    axis = x.ndim - 2
    kept = {"axis": (1,), "keepdims": True}
    found = kernels.reduced(
        "columns",
        lambda x, y: (x * y, x.sum(**kept), (x * y).sum(**kept), x.max(**kept)),
        (axis,),
        (x, 2 * x),
    )
    wide = x.astype(float)
    product, kept = wide * 2 * wide, {"axis": axis, "keepdims": True}
    desired = product, wide.sum(**kept), product.sum(**kept), x.max(**kept)
    for one, other in zip(found, desired, strict=True):
        np.testing.assert_allclose(one, other, rtol=3e-7)


def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    x = np.random.default_rng(0).normal(size=(501, 777)).astype("float32")

    def sums():
        eager_kernels._plans.clear()
        return kernels.reduced("sum", lambda x: x.sum(axis=(1,), keepdims=True), (1,), (x,))

    several = sums()
    monkeypatch.setattr(pool, "thread_count", lambda: 1)
    assert several.tobytes() == sums().tobytes()


def test_choices_and_logic():
    x = np.random.default_rng(0).normal(size=(50, 40))

    def function(x):
        inside = functions.logical_and(x > -1, functions.logical_not(functions.greater(x, 1)))
        return functions.where(functions.logical_or(inside, x > 2), x, 0.0)

    found = kernels.elementwise("chosen", function, (x,))
    assert (found == np.where(((x > -1) & ~(x > 1)) | (x > 2), x, 0)).all()


# --- operations ---------------------------------------------------------------------

BY_KERNELS = (
    *(
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "tanh",
        "sigmoid",
        "softplus",
        "silu",
        "mish",
        "relu",
    ),
    *("relu6", "hard_tanh", "leaky_relu", "elu", "celu", "selu", "gelu", "erf", "erfc", "ndtr"),
    *("sqrt", "square", "abs", "negative", "reciprocal", "softmax", "log_softmax"),
    *("layer_norm", "rms_norm", "log_sigmoid", "softsign"),
)


@pytest.mark.parametrize("name", BY_KERNELS)
def test_large_arrays_are_computed_by_kernels_and_their_gradients_too(name, monkeypatch):
    ran = []
    run = eager_kernels.Plan.run
    monkeypatch.setattr(
        eager_kernels.Plan, "run", lambda plan, operands: ran.append(plan) or run(plan, operands)
    )
    x = np.random.default_rng(0).uniform(0.1, 0.9, (600, 500)).astype("float32")
    out, pull = fdbr.vjp(getattr(ops, name), x)
    assert ran, "the value"
    ran.clear()
    pull(np.ones_like(out))
    assert ran or name in ("negative",), "the gradient"


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled(CASES, 0), ids=repr)
def test_every_operation_is_the_same_by_kernels(case, small):
    def both(args):
        with np.errstate(all="ignore"):
            out, pull = fdbr.vjp(lambda *args: case.function(*args), *args)
            ones = fdbr.tree.map(lambda out: np.ones(np.shape(out), np.result_type(out)), out)
            return out, pull(ones)

    @few(2)
    @given(case.arguments)
    def check(args):
        try:
            found = both(args)
        except TypeError:
            return  # what has no derivative says so either way
        with pytest.MonkeyPatch.context() as patch:
            use_kernels_from(math.inf, patch)
            desired = both(args)
        for one, other in zip(*map(fdbr.tree.leaves, (found, desired)), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)

    check()


# --- what is left to NumPy ----------------------------------------------------------


def test_errors_that_numpy_is_to_raise_are_raised():
    x = np.full((600, 1000), -1.0, "float32")
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        ops.log(x)
    assert np.isnan(ops.log(x)).all()


@pytest.mark.parametrize("dtype", ["int32", "float16", "complex64", "object"])
def test_other_dtypes_are_none_of_kernels(dtype):
    assert kernels.elementwise("other", lambda x: x + x, (np.ones(100, dtype),)) is None


def test_outer_operations_and_results_of_several_outputs():
    x = np.arange(100.0)
    found = kernels.elementwise("outer", lambda x, y: x - y, (x[:, None], x))
    assert np.array_equal(found, x[:, None] - x)
    assert kernels.elementwise("two", lambda x: (x, x + 1), (x,)) is None


def test_classes_of_other_arrays_are_none_of_kernels():
    class Named(np.ndarray):
        pass

    for shape in ((100,), (1,)):  # of which no kernel knows by the class
        values = np.ones(100), np.ones(shape).view(Named)
        assert kernels.elementwise("named", lambda x, y: x + y, values) is None


def test_functions_that_decide_are_none_of_kernels():
    x = np.ones(100)
    assert kernels.elementwise("decides", lambda x: x if x > 0 else -x, (x,)) is None
    assert kernels.elementwise("lacks", lambda x: functions.cumsum(x), (x,)) is None
    assert kernels.elementwise("constant", lambda x: 3.0, (x,)) is None


def test_what_llvm_cannot_compile_is_left_to_numpy_with_a_warning(monkeypatch, caplog):
    def fails(source):
        raise RuntimeError("no such processor")

    monkeypatch.setattr(eager_kernels, "address_of", fails)
    with caplog.at_level(logging.WARNING, "fdbr.backends.cpu.kernels"):
        assert kernels.elementwise("broken", lambda x: x + 7, (np.ones(100),)) is None
    assert "no such processor" in caplog.text


def test_plans_are_bounded(monkeypatch):
    monkeypatch.setattr(eager_kernels, "_MOST", 10)
    for n in range(100, 150):
        kernels.elementwise("bounded", lambda x: x + 1, (np.ones(n),))
    assert len(eager_kernels._plans) <= 10


def test_keywords_that_change_from_call_to_call_do_not_make_a_kernel_each():
    x = np.ones((600, 500), "float32")
    for slope in np.linspace(0.1, 0.2, 60).tolist():
        assert ops.leaky_relu(-x, slope=slope)[0, 0] == -np.float32(slope)
    kept = [len(found) for found in eager_kernels._sources.values()]
    assert max(kept) < 60


# --- the cache ----------------------------------------------------------------------


def test_machine_code_is_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    source = (
        "define void @kernel(ptr %t, i64 %a, i64 %b, i64 %p) {\n"
        "  store i64 7, ptr %t\n  ret void\n}\n; one of its own\n"
    )
    assert machine.address_of(source)
    (path,) = tmp_path.iterdir()
    machine._loaded.pop(source)
    monkeypatch.setattr(machine, "code", None)  # it must not be compiled again
    assert machine.address_of(source)
    machine._loaded.pop(source)
    monkeypatch.undo()
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    path.write_bytes(path.read_bytes()[:-9])
    assert machine.address_of(source)  # damage is mended


def test_there_need_be_no_home(monkeypatch):
    def nowhere():
        raise RuntimeError("no home")

    for variable in ("FDBR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(machine.Path, "home", nowhere)
    assert machine.cache_directory() is None
    eager_kernels._plans.clear()
    assert (kernels.elementwise("homeless", lambda x: x + 5, (np.ones(100),)) == 6).all()


@given(
    st.lists(st.integers(1, 4), max_size=2),
    st.integers(1, 30),
    st.integers(60, 200),
    st.lists(st.sampled_from(["whole", "part", "turned", "row", "outer", "steps"]), min_size=3),
)
def test_rows_may_have_gaps(stack, rows, columns, layouts):
    rng = np.random.default_rng(rows)
    values = []
    for layout in layouts[:3]:
        wide = rng.normal(size=(*stack, rows + 2, columns + 3)).astype(np.float32)
        values.append(
            {
                "whole": wide[..., :rows, :columns].copy(),
                "part": wide[..., 1:-1, 2:-1],
                "turned": wide[..., -2:0:-1, 3:],
                "row": wide[..., :1, 1 : columns + 1],
                "outer": np.broadcast_to(wide[..., :1, :columns], (*stack, rows, columns)),
                "steps": np.repeat(wide[..., :rows, :columns], 2, axis=-1)[..., ::2],
            }[layout]
        )
    found = kernels.elementwise("apart", lambda x, y, z: (x + y) * z, values)
    if found is not None:  # of so many axes
        np.testing.assert_array_equal(found, (values[0] + values[1]) * values[2])


SHAPES = [(700,), (90, 3), (3, 200), (20, 1, 30), (5, 7, 11)]


@given(
    st.sampled_from(["sin", "cos", "tan"]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(SHAPES),
    st.sampled_from(["C", "F", "rows apart", "one"]),
    st.sampled_from([None, 1e18, np.inf, np.nan]),
    st.integers(0, 1000),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_formulas_that_hold_for_some_numbers_alone_are_used_for_those(
    small, name, dtype, shape, layout, far, place
):
    x = (np.random.default_rng(place).normal(size=shape) * 9).astype(dtype)
    if far is not None:
        x.flat[place % x.size] = far
    if layout == "F":
        x = np.asfortranarray(x)
    elif layout == "rows apart":
        x = np.repeat(x, 2, axis=0)[::2]
    elif layout == "one":
        x = np.broadcast_to(x.reshape(-1)[:1].reshape((1,) * x.ndim), shape)
    ours, numpys = getattr(ops, name), getattr(np, name)
    with np.errstate(invalid="ignore"):
        found, desired = ours(x), numpys(x)
        slope = fdbr.grad(lambda x: ops.sum(ours(x)))(x)
        derivatives = fdbr.vmap(fdbr.grad(ours))(x.reshape(-1)).reshape(shape)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, desired, 4 * eps, 1e-300)
    np.testing.assert_allclose(slope, derivatives, 40 * eps, 1e-300)
    if far == 1e18 and 1e18 in x:
        assert np.array_equal(found, desired)


def test_a_condition_on_what_is_the_same_in_a_whole_row_is_asked_too(small):
    x, scale = np.ones((40, 100)), np.full((40, 1), 2.0)
    for far in (False, True):
        scale[7] = 1e19 if far else 3.0
        found = kernels.elementwise("scaled sine", lambda x, s: x * functions.sin(s), (x, scale))
        if far:
            assert found is None
        else:
            np.testing.assert_allclose(found, x * np.sin(scale), 1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_imaginary_numbers_are_made_of_large_arrays_without_rounding(dtype, layout):
    x = np.asarray(np.random.default_rng(0).normal(size=(700, 800)).astype(dtype), order=layout)
    x[0, :4] = np.inf, np.nan, 0.0, -0.0
    z = np.zeros(x.shape, np.result_type(x, np.complex64))
    (found,) = fdbr.vjp(ops.imag, z)[1](x)
    assert found.dtype == z.dtype
    assert np.array_equal(found.imag, -x, equal_nan=True)
    assert np.array_equal(np.signbit(found.imag), np.signbit(-x))
    assert not found.real.any()

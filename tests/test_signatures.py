"""Declared shapes and dtypes."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops


@fdbr.typed(x="float[*batch c]", weight="o c", bias="o", returns="*batch o")
def project(x, weight, bias=None):
    out = x @ weight.T
    return out if bias is None else out + bias


X, W = np.ones((5, 2)), np.ones((3, 2))

WRONG = {
    "another length": (
        (X, np.ones((3, 4))),
        ValueError,
        "project: weight must be 'o c', got float64[3,4], whose axis 1 has length 4; c is 2 by x "
        "float64[5,2]",
    ),
    "of a further argument": (
        (X, W, np.ones(4)),
        ValueError,
        "project: bias must be 'o', got float64[4], whose axis 0 has length 4; o is 3 by weight "
        "float64[3,2]",
    ),
    "axes": (
        (X, np.ones(3)),
        ValueError,
        "project: weight must be 'o c', got float64[3], which has 1 axes instead of 2",
    ),
    "too few axes": (
        (np.float64(1.0), W),
        ValueError,
        "project: x must be 'float[*batch c]', got float64[], which has 0 axes instead of at "
        "least 1",
    ),
    "dtype": (
        (X.astype(int), W),
        TypeError,
        "project: x must be 'float[*batch c]', got int64[5,2], which has another dtype",
    ),
    "no array": (
        ("text", W),
        TypeError,
        "project: x must be 'float[*batch c]', got str, which is not an array",
    ),
    "None that is no default": (
        (X, None),
        TypeError,
        "project: weight must be 'o c', got NoneType, which is not an array",
    ),
}


def under_grad(f, x, *rest):
    return fdbr.grad(lambda scale: ops.sum(f(x * scale if hasattr(x, "dtype") else x, *rest)))(1.0)


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_by_name(name):
    args, kind, message = WRONG[name]
    for _ in range(2):
        with pytest.raises(kind) as caught:
            project(*args)
        assert str(caught.value) == message
    with pytest.raises(kind):
        fdbr.jit(lambda s: project(*args) * s)(1.0)
    if kind is ValueError:
        with pytest.raises(kind) as caught:
            under_grad(project, *args)
        assert str(caught.value) == message


def test_what_fits_passes_under_every_transformation(xp):
    x, w = xp.asarray(X), xp.asarray(W)
    for f in (project, fdbr.jit(project)):
        assert f(x, w).shape == (5, 3)
        assert f(x, w, bias=xp.asarray(np.ones(3))).shape == (5, 3)
        assert f(x=x, weight=w).shape == (5, 3)
        assert f(x[0], w).shape == (3,)
    assert fdbr.vmap(project, in_axes=(0, None))(x, w).shape == (5, 3)
    assert fdbr.vmap(fdbr.grad(lambda x, w: ops.sum(project(x, w))), in_axes=(0, None))(
        x, w
    ).shape == (5, 2)
    assert fdbr.jvp(project, (x, w), (x, None))[1].shape == (5, 3)


def test_in_a_batch_the_shape_is_that_of_one_example():
    with pytest.raises(ValueError, match=r"got float64\[3,3\].* c is 2 by x float64\[5,2\]"):
        fdbr.vmap(project)(np.ones((4, 5, 2)), np.ones((4, 3, 3)))


@given(
    st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4), st.booleans()
)
def test_names_rests_and_numbers_agree_with_a_plain_comparison(a, b, first):
    """By two axes at an end and any number at the other."""
    text = "n m *rest" if first else "*rest n m"
    f = fdbr.typed(x=text, y=text)(lambda x, y: 0)
    fits = len(a) >= 2 and a == b
    try:
        f(np.zeros(a), np.zeros(b))
        found = True
    except ValueError:
        found = False
    assert found is fits


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("3 _ n", [(3, 1, 2), (3, 5, 0)], [(2, 1, 2), (3, 1)]),
        ("... 3", [(3,), (1, 2, 3)], [(), (3, 4)]),
        ("n ... n", [(2, 2), (2, 5, 6, 2)], [(2, 3), (2,)]),
        ("", [()], [(1,)]),
        ("n n", [(2, 2), (0, 0)], [(2, 3)]),
        ("n, c", [(2, 3)], [(2,)]),
        ("float32[n]", [], [(2,)]),
    ],
)
def test_patterns(text, good, bad):
    f = fdbr.typed(x=text)(lambda x: None)
    for shape in good:
        f(np.ones(shape))
        f(np.ones(shape))
    for shape in bad:
        with pytest.raises((ValueError, TypeError)):
            f(np.ones(shape))


KINDS = {
    "float": "float32 float64 float16",
    "real floating": "float32",
    "complex": "complex64",
    "inexact": "float32 complex128",
    "int": "int8 uint32",
    "unsigned integer": "uint8",
    "bool": "bool",
    "numeric": "int8 float64 complex64",
    "real": "int8 float32",
    "float32": "float32",
    "int8": "int8",
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_dtypes(kind):
    f = fdbr.typed(x=f"{kind}[n]")(lambda x: x)
    for dtype in "bool int8 uint8 uint32 float16 float32 float64 complex64 complex128".split():
        if dtype in KINDS[kind].split():
            f(np.ones(2, dtype))
    refused = {"bool": "int8", "complex": "float32"}.get(kind, "bool")
    with pytest.raises(TypeError, match="which has another dtype"):
        f(np.ones(2, refused))


def test_numbers_of_python_are_weak_traced_or_not():
    f = fdbr.typed(x="float32[]")(lambda x: x * 1.0)
    for run in (f, fdbr.grad(f), fdbr.jit(f)):
        run(2.0)
        with pytest.raises(TypeError, match="another dtype"):
            run(np.float64(2.0))
        run(np.float32(2.0))
    f(2)
    with pytest.raises(TypeError, match="got complex"):
        f(1j)


def test_methods_and_fields_are_declared_too():
    @fdbr.frozen
    class Layer:
        weight: object

        @fdbr.typed({"self.weight": "float[o c]"}, x="*batch c", returns="*batch o")
        def __call__(self, x):
            return x @ self.weight.T

    layer = Layer(W)
    assert layer(X).shape == (5, 3)
    assert fdbr.grad(lambda layer: ops.sum(layer(X)))(layer).weight.shape == (3, 2)
    with pytest.raises(ValueError, match=r"^Layer.__call__: x must be .*c is 2 by self\.weight"):
        layer(np.ones((5, 4)))


def test_annotations_that_are_strings_declare():
    def project(x, w, name="a"):
        return x @ w.T

    project.__annotations__ = {"x": "n c", "w": "o c", "name": str, "return": "n o"}
    checked = fdbr.typed(project)
    assert checked(X, W, name="b").shape == (5, 3)
    with pytest.raises(ValueError, match=r"w must be 'o c', got float64\[3,4\]"):
        checked(X, np.ones((3, 4)))
    assert inspect.signature(checked) == inspect.signature(project)
    assert checked.__name__ == "project"


def test_results_are_checked():
    f = fdbr.typed(x="n", returns=("n", "int[]"))(lambda x, drop: (x[drop:], 3))
    f(np.ones(3), 0)
    f(np.ones(3), 0)
    with pytest.raises(ValueError, match=r"result 0 must be 'n', got float64\[2\].* n is 3 by x"):
        f(np.ones(3), 1)
    f = fdbr.typed(returns=("n", "n"))(lambda x: x)
    with pytest.raises(TypeError, match="the result must be a tuple of 2, got float64"):
        f(np.float64(1.0))


@pytest.mark.parametrize(
    ("declare", "kind", "words"),
    [
        (lambda: fdbr.typed(y="n")(lambda x: x), TypeError, "has no argument 'y'; there are .'x'"),
        (lambda: fdbr.typed(x="n c-d")(lambda x: x), ValueError, "not 'c-d'"),
        (lambda: fdbr.typed(x="... n ...")(lambda x: x), ValueError, "at most one"),
        (lambda: fdbr.typed(x="flot[n]")(lambda x: x), ValueError, "'flot' is neither a dtype"),
        (lambda: fdbr.typed(x=3)(lambda x: x), TypeError, "must be a string"),
        (lambda: fdbr.typed(3), TypeError, "takes a function, not int 3"),
        (lambda: fdbr.typed(x="n")(lambda *x: x), TypeError, "collects any number of arguments"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declare, kind, words):
    with pytest.raises(kind, match=f"^fdbr.typed: .*{words}"):
        declare()


def test_a_missing_argument_is_what_the_function_says():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
        project(X)

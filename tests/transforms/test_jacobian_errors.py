"""What linearize, jacfwd, jacrev, hessian and hvp say when something does not fit."""

import numpy as np
import pytest

import fdbr

X = np.array([0.4, -1.3, 0.8])


def model(p, x=1.0):
    return {"y": p["w"] * x}


P = {"w": np.ones(3), "n": 2}
LINEAR = fdbr.linearize(model, P, 2.0)[1]
ERRORS = {
    "argnums out of range": (
        lambda: fdbr.jacfwd(model, 2)(P, 1.0),
        TypeError,
        "fdbr.jacfwd: argnums=2 but model was called with 2 positional arguments",
    ),
    "argnums twice": (
        lambda: fdbr.jacrev(model, (0, -2))(P, 1.0),
        TypeError,
        r"fdbr.jacrev: argnums=\(0, -2\) names an argument twice",
    ),
    "argnums is no integer": (
        lambda: fdbr.hessian(model, "p"),
        TypeError,
        "fdbr.hessian: argnums must be an integer or a sequence of integers, not 'p'",
    ),
    "nothing to differentiate": (
        lambda: fdbr.jacfwd(model)({"w": np.arange(3)}),
        TypeError,
        "fdbr.jacfwd: the argument of model has no leaf to differentiate",
    ),
    "nothing to differentiate, in reverse": (
        lambda: fdbr.jacrev(model)({"w": np.arange(3)}),
        TypeError,
        "fdbr.jacrev: the argument of model has no leaf to differentiate",
    ),
    "no derivative of the result": (
        lambda: fdbr.jacfwd(lambda x: x > 0)(X),
        TypeError,
        "fdbr.jacfwd: the result of .* has no leaf to differentiate",
    ),
    "no derivative of the result, in reverse": (
        lambda: fdbr.jacrev(lambda x: None)(X),
        TypeError,
        "fdbr.jacrev: the result of .* has no leaf to differentiate",
    ),
    "a complex argument": (
        lambda: fdbr.jacfwd(model)({"w": X * 1j}),
        TypeError,
        r"fdbr.jacfwd: the argument of model has a complex leaf, complex128\[3\]; say holomorphic=",
    ),
    "a complex result of real ones": (
        lambda: fdbr.jacrev(lambda x: x * 1j)(X),
        TypeError,
        "fdbr.jacrev: the result of .* has a complex leaf",
    ),
    "holomorphic with a real argument": (
        lambda: fdbr.jacrev(model, holomorphic=True)(P),
        TypeError,
        r"fdbr.jacrev: the argument of model has a real leaf, float64\[3\], but holomorphic=True",
    ),
    "holomorphic with a real result": (
        lambda: fdbr.jacrev(np.abs, holomorphic=True)(X * 1j),
        TypeError,
        r"fdbr.jacrev: the result of absolute has a real leaf, float64\[3\]",
    ),
    "has_aux without a pair": (
        lambda: fdbr.jacrev(model, has_aux=True)(P),
        TypeError,
        r"with has_aux=True model must return a pair \(value, aux\), not dict",
    ),
    "a hessian of what is no scalar": (
        lambda: fdbr.hvp(np.sin, (X,), (X,)),
        TypeError,
        r"fdbr.hvp: sin must return a real floating scalar, but it returned float64\[3\]",
    ),
    "hvp without sequences": (
        lambda: fdbr.hvp(np.sin, 1.0, 1.0),
        TypeError,
        "fdbr.hvp: primals and tangents must be tuples or lists, one entry an argument",
    ),
    "hvp without arguments": (
        lambda: fdbr.hvp(lambda: 1.0, (), ()),
        TypeError,
        "fdbr.hvp: the argument of .* has no leaf to differentiate",
    ),
    "hvp with different lengths": (
        lambda: fdbr.hvp(np.sum, (X,), (X, X)),
        ValueError,
        "fdbr.hvp: 1 primals but 2 tangents",
    ),
    "the shape of a tangent of hvp": (
        lambda: fdbr.hvp(np.sum, (X,), (np.ones(4),)),
        ValueError,
        r"the tangent of argument 0 of sum must have shape \(3,\), not float64\[4\]",
    ),
    "linearize: the number of tangents": (
        lambda: LINEAR(P),
        TypeError,
        "fdbr.linearize: model has 2 arguments, but there are 1 tangents",
    ),
    "linearize: structure": (
        lambda: LINEAR({"v": X}, None),
        ValueError,
        "fdbr.linearize: the tangent of argument 0 of model must have the structure of the primal",
    ),
    "linearize: shape": (
        lambda: LINEAR({"w": np.ones(4), "n": None}, 1.0),
        ValueError,
        r"fdbr.linearize: the tangent of argument 0 at \['w'\] of model must have shape \(3,\), "
        r"not float64\[4\]",
    ),
    "linearize: dtype": (
        lambda: LINEAR({"w": np.ones(3, "float32"), "n": None}, 1.0),
        TypeError,
        r"the tangent of argument 0 at \['w'\] of model must have dtype float64, not float32\[3\]",
    ),
    "linearize: a tangent of what is not differentiated": (
        lambda: LINEAR({"w": np.ones(3), "n": 1}, 1.0),
        TypeError,
        r"fdbr.linearize: argument 0 at \['n'\] of model is int64\[\] and not differentiated",
    ),
    "linearize: no derivative of the result": (
        lambda: fdbr.linearize(lambda x: x > 0, X),
        TypeError,
        r"fdbr.linearize: .* returns nothing that is floating or complex, but bool\[3\]",
    ),
    "linearize: nothing to differentiate": (
        lambda: fdbr.linearize(model, {"w": 3}, 2),
        TypeError,
        "fdbr.linearize: no argument of model has a leaf to differentiate.*: int 3",
    ),
}
for transformation in ("jacfwd", "jacrev", "hessian"):
    ERRORS[f"{transformation} of no function"] = (
        lambda t=transformation: getattr(fdbr, t)(3),
        TypeError,
        "fdbr.[a-z]*: f must be a function, not int 3",
    )
ERRORS["linearize of no function"] = (
    lambda: fdbr.linearize(3, 1.0),
    TypeError,
    "fdbr.linearize: f must be a function, not int 3",
)
ERRORS["hvp of no function"] = (
    lambda: fdbr.hvp(3, (1.0,), (1.0,)),
    TypeError,
    "fdbr.hvp: f must be a function, not int 3",
)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_argument_and_path(name):
    attempt, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        attempt()

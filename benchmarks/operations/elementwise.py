"""What acts on each element alone."""

from typing import Any

import attrs

from benchmarks.operations.program import Draw, Program, same

__all__ = ["PROGRAMS"]

_F = "nn.functional."


def _normal(d: Draw) -> Any:
    return (d.normal(),)


def _positive(d: Draw) -> Any:
    return (d.uniform(0.2, 3),)


def _inside(d: Draw) -> Any:
    return (d.uniform(-0.9, 0.9),)


def _share(d: Draw) -> Any:
    return (d.uniform(0.1, 0.9),)


def _two(d: Draw) -> Any:
    return d.normal(), d.normal()


def _two_positive(d: Draw) -> Any:
    return d.uniform(0.2, 3), d.uniform(0.2, 3)


def _truths(d: Draw) -> Any:
    return d.truths(), d.truths()


def _integers(d: Draw) -> Any:
    return d.integers(0, 8), d.integers(0, 8)


_ONE = [
    *same("exp exp2 expm1 square sin cos sinh cosh tanh atan asinh sigmoid negative abs", _normal),
    *same("erf erfc sinc positive:clone", _normal),
    *same("expit:special.expit ndtr:special.ndtr log_ndtr:special.log_ndtr", _normal),
    *same("special.j0:special.bessel_j0 special.j1:special.bessel_j1", _positive, gradient=False),
    *same("special.y0:special.bessel_y0 special.y1:special.bessel_y1", _positive, gradient=False),
    *same(
        "special.k0:special.modified_bessel_k0 special.k1:special.modified_bessel_k1 "
        "special.k0e:special.scaled_modified_bessel_k0 "
        "special.k1e:special.scaled_modified_bessel_k1",
        _positive,
        gradient=False,
    ),
    *same("erfcx:special.erfcx", _normal, gradient=False),  # PyTorch has no derivative
    *same("i0 i0e:special.i0e i1:special.i1 i1e:special.i1e", _normal),
    *same("log log2 log10 log1p sqrt reciprocal", _positive),
    *same("digamma gammaln:lgamma entr:special.entr", _positive),
    *same("tan asin acos atanh erfinv", _inside),
    *same("acosh", lambda d: (d.uniform(1.1, 3),)),
    *same("logit ndtri:special.ndtri", _share),
    *same("floor ceil trunc round sign signbit isfinite isinf isnan", _normal, gradient=False),
    *same("logical_not", lambda d: (d.truths(),), gradient=False),
    *same("bitwise_invert:bitwise_not", lambda d: (d.integers(0, 8),), gradient=False),
    *same("conj:conj_physical real imag", lambda d: (d.complex(),)),
    Program("polygamma", _positive, lambda o, x: o.polygamma(1, x), lambda t, x: t.polygamma(1, x)),
    Program("clip", _normal, lambda o, x: o.clip(x, -0.5, 0.5), lambda t, x: t.clamp(x, -0.5, 0.5)),
    Program(
        "clip/below", _normal, lambda o, x: o.clip(x, min=-0.5), lambda t, x: t.clamp(x, min=-0.5)
    ),
    Program("astype", _normal, lambda o, x: o.astype(x, "float64"), lambda t, x: x.to(t.float64)),
    Program(
        "astype/to integers",
        _normal,
        lambda o, x: o.astype(x, "int32"),
        lambda t, x: x.to(t.int32),
        gradient=False,
    ),
]

_ACTIVATIONS = [
    *same(
        [f"{name}:{_F}{name}" for name in "relu relu6 elu celu selu gelu silu mish".split()],
        _normal,
    ),
    *same([f"{name}:{_F}{name}" for name in "softplus softsign leaky_relu".split()], _normal),
    *same([f"hard_tanh:{_F}hardtanh", f"log_sigmoid:{_F}logsigmoid"], _normal),
    Program(
        "gelu/approximate",
        _normal,
        lambda o, x: o.gelu(x, approximate=True),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    ),
    Program(
        "glu",
        lambda d: (d.normal(d.shape(2)[0], 2 * d.shape(2)[1]),),
        lambda o, x: o.glu(x),
        lambda t, x: t.nn.functional.glu(x),
    ),
]

_OPERATORS = [
    *(
        Program(
            f"power/{exponent}",
            _normal if isinstance(exponent, int) else _positive,
            lambda o, x, exponent=exponent: o.power(x, exponent),
            lambda t, x, exponent=exponent: x**exponent,
        )
        for exponent in (2, 3, 4, 7, -1, -2, 0.5, -0.5, 1.5, 2.5, 2.2)
    ),
    *(
        Program(
            f"{name}/a number", _normal, lambda o, x, f=f: f(x, 1.5), lambda t, x, f=f: f(x, 1.5)
        )
        for name, f in [
            ("add", lambda x, y: x + y),
            ("subtract", lambda x, y: y - x),
            ("multiply", lambda x, y: x * y),
            ("divide", lambda x, y: x / y),
        ]
    ),
]

_TWO = [
    *same("add subtract multiply maximum minimum atan2 hypot logaddexp copysign", _two),
    *same("divide power:pow pow xlogy xlog1py:special.xlog1py", _two_positive),
    *same("rsqrt", lambda d: (d.uniform(0.5, 2),)),
    *same("lerp", lambda d: (d.normal(), d.normal(), d.normal())),
    *same("remainder fmod", lambda d: (d.normal(), d.uniform(0.2, 3))),
    *same("floor_divide nextafter", _two_positive, gradient=False),
    *same("equal:eq not_equal less less_equal greater greater_equal", _two, gradient=False),
    *same("logical_and logical_or logical_xor", _truths, gradient=False),
    *same("bitwise_and bitwise_or bitwise_xor", _integers, gradient=False),
    *same("bitwise_left_shift bitwise_right_shift", _integers, gradient=False),
    *same("zeta:special.zeta", lambda d: (d.uniform(1.5, 5), d.uniform(0.5, 3)), gradient=False),
    *same("where", lambda d: (d.truths(), d.normal(), d.normal())),
    *same(
        "gammainc:special.gammainc gammaincc:special.gammaincc", _two_positive, gradient=False
    ),  # PyTorch has no derivative by the first
]

_SHAPES = {
    "rows": lambda d: (d.matrix(), d.uniform(0.2, 3, d.shape(2)[1])),
    "columns": lambda d: (d.matrix(), d.uniform(0.2, 3, d.shape(2)[0], 1)),
    "channels": lambda d: (d.images(), d.uniform(0.2, 3, d.shape(4)[1], 1, 1)),
}

_BROADCAST = [
    attrs.evolve(program, name=f"{program.name}/{kind}")
    for kind, draw in _SHAPES.items()
    for program in same("add multiply divide maximum", draw)
]

PROGRAMS = [*_ONE, *_ACTIVATIONS, *_OPERATORS, *_TWO, *_BROADCAST]

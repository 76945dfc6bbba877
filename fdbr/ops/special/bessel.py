"""Bessel functions: of cylinders, modified, of Hankel, scaled, and of spheres.

By the argument they are differentiated, by the order they are not.  Derivatives are differences
of neighbours in order (https://dlmf.nist.gov/10.6 and 10.29), without a division by the
argument, so they are right at 0 too.  Where `scipy.special` takes complex arguments, so do
these; those that are scaled by the size of a part of the argument are for real ones alone.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.jv(1.0, 0.5), 6), round(float(fdbr.grad(special.j0)(0.5)), 6)
(0.242268, -0.242268)
"""

from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.elementwise.arithmetic import sign
from fdbr.ops.special.far_out import FALLING, GROWING, derivative_far_out, hankel_derivative
from fdbr.ops.special.library import (
    one_less,
    refuse_complex,
    scipy_function,
    scipy_special,
    unknown,
)
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "hankel1",
    "hankel1e",
    "hankel2",
    "hankel2e",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jn",
    "jv",
    "jve",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kn",
    "kv",
    "kve",
    "spherical_in",
    "spherical_jn",
    "spherical_kn",
    "spherical_yn",
    "y0",
    "y1",
    "yn",
    "yv",
    "yve",
]


def _falling(f: Any) -> Any:
    """The derivative where it is half the difference of the neighbours."""
    return lambda v, z: 0.5 * (f()(v - 1.0, z) - f()(v + 1.0, z))


def _mean(f: Any, v: Any, z: Any) -> Any:
    return 0.5 * (f(v - 1.0, z) + f(v + 1.0, z))


# --- of cylinders -------------------------------------------------------------------

jv = scipy_function(
    *("jv", "v z", "The Bessel function of the first kind of real order ``v``."),
    z=_falling(lambda: jv),
)
jn = jv
yv = scipy_function(
    *("yv", "v z", "The Bessel function of the second kind of real order ``v``."),
    z=_falling(lambda: yv),
)
yn = scipy_function(
    *("yn", "n x", "The Bessel function of the second kind of integer order ``n``."),
    x=lambda n, x: 0.5 * (yv(n - 1.0, x) - yv(n + 1.0, x)),
)
j0 = scipy_function(
    *("j0", "x", "The Bessel function of the first kind of order 0."),
    x=lambda x: -j1(x),
)
j1 = scipy_function(
    *("j1", "x", "The Bessel function of the first kind of order 1."),
    x=lambda x: 0.5 * (j0(x) - jv(2.0, x)),
)
y0 = scipy_function(
    *("y0", "x", "The Bessel function of the second kind of order 0."),
    x=lambda x: -y1(x),
)
y1 = scipy_function(
    *("y1", "x", "The Bessel function of the second kind of order 1."),
    x=lambda x: 0.5 * (y0(x) - yv(2.0, x)),
)
hankel1 = scipy_function(
    *("hankel1", "v z", "Hankel's function of the first kind, ``jv + 1j * yv``."),
    z=_falling(lambda: hankel1),
)
hankel2 = scipy_function(
    *("hankel2", "v z", "Hankel's function of the second kind, ``jv - 1j * yv``."),
    z=_falling(lambda: hankel2),
)
hankel1e = scipy_function(
    *("hankel1e", "v z", "``exp(-1j * z) * hankel1(v, z)``."),
    z=lambda v, z: _hankel_derivative(hankel1e, 1, v, z),
)
hankel2e = scipy_function(
    *("hankel2e", "v z", "``exp(1j * z) * hankel2(v, z)``."),
    z=lambda v, z: _hankel_derivative(hankel2e, -1, v, z),
)


def _hankel_derivative(f: Any, way: int, v: Any, z: Any) -> Any:
    def near(z: Any) -> Any:
        return 0.5 * (f(v - 1.0, z) - f(v + 1.0, z)) - 1j * way * f(v, z)

    return hankel_derivative(way, v, z, near)


# --- modified -----------------------------------------------------------------------

iv = scipy_function(
    *("iv", "v z", "The modified Bessel function of the first kind of real order ``v``."),
    z=lambda v, z: _mean(iv, v, z),
)
kv = scipy_function(
    *("kv", "v z", "The modified Bessel function of the second kind of real order ``v``."),
    z=lambda v, z: -_mean(kv, v, z),
)
kve = scipy_function(
    *("kve", "v z", "``exp(z) * kv(v, z)``, without underflow."),
    z=lambda v, z: _kve_derivative(v, z),
)
kn = scipy_function(
    *("kn", "n x", "The modified Bessel function of the second kind of integer order ``n``."),
    x=lambda n, x: -_mean(kv, n, x),
)
i0 = scipy_function(
    *("i0", "x", "The modified Bessel function of the first kind of order 0."),
    x=lambda x: i1(x),
)
i1 = scipy_function(
    *("i1", "x", "The modified Bessel function of the first kind of order 1."),
    x=lambda x: 0.5 * (i0(x) + iv(2.0, x)),
)
k0 = scipy_function(
    *("k0", "x", "The modified Bessel function of the second kind of order 0."),
    x=lambda x: -k1(x),
)
k1 = scipy_function(
    *("k1", "x", "The modified Bessel function of the second kind of order 1."),
    x=lambda x: -0.5 * (k0(x) + kv(2.0, x)),
)
i0e = scipy_function(
    *("i0e", "x", "``exp(-abs(x)) * i0(x)``; its derivative at 0 is taken as 0."),
    x=lambda x: derivative_far_out(GROWING, 0.0, x, lambda x: i1e(x) - sign(x) * i0e(x), parity=1),
)
i1e = scipy_function(
    *("i1e", "x", "``exp(-abs(x)) * i1(x)``."),
    x=lambda x: derivative_far_out(GROWING, 1.0, x, lambda x: _near_i1e(x), parity=-1),
)
k0e = scipy_function(
    *("k0e", "x", "``exp(x) * k0(x)``."),
    x=lambda x: derivative_far_out(FALLING, 0.0, x, lambda x: k0e(x) - k1e(x)),
)
k1e = scipy_function(
    *("k1e", "x", "``exp(x) * k1(x)``."),
    x=lambda x: derivative_far_out(
        FALLING, 1.0, x, lambda x: k1e(x) - 0.5 * (k0e(x) + kve(2.0, x))
    ),
)


def _near_i1e(x: Any) -> Any:
    return 0.5 * (i0e(x) + ive(2.0, x)) - sign(x) * i1e(x)


def _kve_derivative(v: Any, z: Any) -> Any:
    def near(z: Any) -> Any:
        return kve(v, z) - _mean(kve, v, z)

    return derivative_far_out(FALLING, v, z, near)


def _ive_derivative(v: Any, z: Any) -> Any:
    return derivative_far_out(GROWING, v, z, lambda z: _mean(ive, v, z) - sign(z) * ive(v, z))


# --- scaled by the size of a part, for real arguments -------------------------------


@elementwise(double=True, v=unknown("jve", "v"), z=_falling(lambda: jve))
def jve(xp: Any, v: ArrayLike, z: ArrayLike) -> Array:
    """``exp(-abs(imag(z))) * jv(v, z)``: for real ``z``, to which it is held here, `jv` itself.

    No derivative in v is known.
    """
    refuse_complex("special.jve", z)
    return scipy_special.on(xp)(xp, "jve", v, z)


@elementwise(double=True, v=unknown("yve", "v"), z=_falling(lambda: yve))
def yve(xp: Any, v: ArrayLike, z: ArrayLike) -> Array:
    """``exp(-abs(imag(z))) * yv(v, z)``: for real ``z``, to which it is held here, `yv` itself.

    No derivative in v is known.
    """
    refuse_complex("special.yve", z)
    return scipy_special.on(xp)(xp, "yve", v, z)


@elementwise(double=True, v=unknown("ive", "v"), z=_ive_derivative)
def ive(xp: Any, v: ArrayLike, z: ArrayLike) -> Array:
    """``exp(-abs(z)) * iv(v, z)``, of real ``z``.  No derivative in v is known."""
    refuse_complex("special.ive", z)
    return scipy_special.on(xp)(xp, "ive", v, z)


# --- of spheres ---------------------------------------------------------------------
#
# (2n + 1) f' is n f(n-1) - (n + 1) f(n+1), with a plus for the modified ones.


def _derivative(f: Any, below: int, above: int) -> Any:
    def slope(n: Any, z: Any) -> Any:
        lower = n * f()(one_less(n)[1], z)
        return (below * lower + above * (n + 1) * f()(n + 1, z)) / (2.0 * n + 1)

    return slope


_derivatives = {
    "jn": _derivative(lambda: _spherical_jn, 1, -1),
    "yn": _derivative(lambda: _spherical_yn, 1, -1),
    "in": _derivative(lambda: _spherical_in, 1, 1),
    "kn": _derivative(lambda: _spherical_kn, -1, -1),
}
_spherical_jn = scipy_function("_spherical_jn", "n z", "", z=_derivatives["jn"])
_spherical_yn = scipy_function("_spherical_yn", "n z", "", z=_derivatives["yn"])
_spherical_in = scipy_function("_spherical_in", "n z", "", z=_derivatives["in"])
_spherical_kn = scipy_function("_spherical_kn", "n z", "", z=_derivatives["kn"])


def spherical_jn(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Array:
    """The spherical Bessel function of the first kind of order ``n``, or its derivative.

    ``n`` is of integers of at least 0; no derivative in it is known.
    """
    return _derivatives["jn"](n, z) if derivative else _spherical_jn(n, z)


def spherical_yn(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Array:
    """The spherical Bessel function of the second kind of order ``n``, or its derivative.

    ``n`` is of integers of at least 0; no derivative in it is known.
    """
    return _derivatives["yn"](n, z) if derivative else _spherical_yn(n, z)


def spherical_in(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Array:
    """The modified spherical Bessel function of the first kind, or its derivative.

    ``n`` is of integers of at least 0; no derivative in it is known.
    """
    return _derivatives["in"](n, z) if derivative else _spherical_in(n, z)


def spherical_kn(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Array:
    """The modified spherical Bessel function of the second kind, or its derivative.

    ``n`` is of integers of at least 0; no derivative in it is known.
    """
    return _derivatives["kn"](n, z) if derivative else _spherical_kn(n, z)

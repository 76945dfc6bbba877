"""The polynomials of special functions in kernels: ``python -m benchmarks.accuracy.fitting``.

Each function is interpolated at Chebyshev's points with 60 digits, the series cut where the rest is
too small to count, and turned into powers.  What is printed is the module
`fdbr.backends.cpu.codegen.math.coefficients`.
"""

from collections.abc import Callable
from typing import Any

from mpmath import mp, mpf

_POINTS = 64
_HEAD = '''"""Coefficients of polynomials on [-1, 1], lowest power first, as ``python -m
benchmarks.accuracy.fitting`` prints them, which says what each is of.
"""
'''
Fit = tuple[Callable[[Any], Any], Callable[[Any], Any]]
TOLERANCE = mpf("3e-15")  # relative to the least value
LESS = {"ERFINV": mpf("1e-11"), "ERFINV_FAR": mpf("1e-11"), "ERFINV_SINGLE": mpf("1e-8")}


def _of_square(end: int) -> Callable[[Any], Any]:
    """From [-1, 1] to ``x``, whose square is in ``[0, end]``."""
    return lambda t: mp.sqrt((t + 1) * end / 2)


def _beyond(start: int) -> Callable[[Any], Any]:
    """From [-1, 1] to ``x`` from ``start`` on, whose reciprocal is linear in it."""
    return lambda t: 2 * start / (t + 1)


def _near_eight(t: Any) -> Any:
    return 4 * (t + 1)


def _square_beyond(start: int) -> Callable[[Any], Any]:
    return lambda t: start / mp.sqrt((t + 1) / 2)


def _phase(order: int, sine: bool) -> Callable[[Any], Any]:
    """P or Q of Hankel's expansion, the latter times ``x`` (https://dlmf.nist.gov/10.18)."""

    def value(x: Any) -> Any:
        angle = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        c, s = mp.cos(angle), mp.sin(angle)
        return mp.sqrt(mp.pi * x / 2) * (x * (y * c - j * s) if sine else j * c + y * s)

    return value


def _tail(t: Any) -> Any:
    """``t`` of which ``y = 1 - 2 / (1 + t / 2)``."""
    return 2 * (2 / (1 - t) - 1)


def _quantile(w: Any) -> Any:
    """``erfinv(x)`` where ``w`` is ``-log(1 - x**2)``, by Newton's method on the logarithm."""
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.exp(-w) / (1 + x)
    y = mp.sqrt(w) if w > 3 else mp.erfinv(x)
    for _ in range(30):
        y += (mp.log(mp.erfc(y) / rest)) * mp.erfc(y) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
    return y


def _inverse(w: Any) -> Any:
    return _quantile(w) / mp.sqrt(-mp.expm1(-w))


FITS: dict[str, Fit] = {
    # exp(-x) I(x), over x**order
    "I0_NEAR": (lambda x: mp.exp(-x) * mp.besseli(0, x), _near_eight),
    "I1_NEAR": (lambda x: mp.exp(-x) * mp.besseli(1, x) / x, _near_eight),
    "I2_NEAR": (lambda x: mp.exp(-x) * mp.besseli(2, x) / x**2, _near_eight),
    # sqrt(x) exp(-x) I(x)
    "I0_FAR": (lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(0, x), _beyond(8)),
    "I1_FAR": (lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(1, x), _beyond(8)),
    # I(x) over x**order, and what K has beside log(x / 2) I(x)
    "I0_SMALL": (lambda x: mp.besseli(0, x), _of_square(4)),
    "I1_SMALL": (lambda x: mp.besseli(1, x) / x, _of_square(4)),
    "K0_SMALL": (lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x), _of_square(4)),
    "K1_SMALL": (
        lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x)),
        _of_square(4),
    ),
    # sqrt(x) exp(x) K(x)
    "K0_FAR": (lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(0, x), _beyond(2)),
    "K1_FAR": (lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(1, x), _beyond(2)),
    # J(x) over x**order, and what Y has beside 2 / pi log(x) J(x), and -2 / (pi x)
    "J0_NEAR": (lambda x: mp.besselj(0, x), _of_square(64)),
    "J1_NEAR": (lambda x: mp.besselj(1, x) / x, _of_square(64)),
    "J2_NEAR": (lambda x: mp.besselj(2, x) / x**2, _of_square(64)),
    "Y0_NEAR": (
        lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x),
        _of_square(64),
    ),
    "Y1_NEAR": (
        lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x,
        _of_square(64),
    ),
    "P0_FAR": (_phase(0, False), _square_beyond(8)),
    "Q0_FAR": (_phase(0, True), _square_beyond(8)),
    "P1_FAR": (_phase(1, False), _square_beyond(8)),
    "Q1_FAR": (_phase(1, True), _square_beyond(8)),
    # exp(t**2) erfc(t) (1 + t / 2), by 1 - 2 / (1 + t / 2)
    "ERFCX": (lambda t: mp.exp(t * t) * mp.erfc(t) * (1 + t / 2), _tail),
    # erfinv(x) / x by w = -log(1 - x**2), and erfinv(x) by the root of that
    "ERFINV": (_inverse, lambda t: mpf("8.4") * (t + 1)),
    "ERFINV_SINGLE": (_inverse, lambda t: mpf("8.4") * (t + 1)),
    "ERFINV_FAR": (lambda s: _quantile(s * s), lambda t: mpf("7.2") + mpf("3.2") * t),
}


def fitted(
    function: Callable[[Any], Any], variable: Callable[[Any], Any], tolerance: Any
) -> list[float]:
    """Coefficients of powers of ``t`` on [-1, 1]."""
    points = [mp.cos(mp.pi * (i + mpf(1) / 2) / _POINTS) for i in range(_POINTS)]
    values = [mp.re(function(variable(t))) for t in points]
    series = [
        2
        * mp.fsum(v * mp.cos(k * mp.acos(t)) for t, v in zip(points, values, strict=True))
        / _POINTS
        for k in range(_POINTS)
    ]
    series[0] /= 2
    least = max(map(abs, values))
    count = _POINTS
    while count > 1 and mp.fsum(map(abs, series[count - 1 :])) < tolerance * least:
        count -= 1
    before, now = [mpf(1)], [mpf(0), mpf(1)]  # Chebyshev's polynomials
    powers = [mpf(0)] * count
    for k in range(count):
        chosen = before if k == 0 else now
        for i, c in enumerate(chosen):
            powers[i] += series[k] * c
        if k:
            after = [mpf(0), *(2 * c for c in now)]
            for i, c in enumerate(before):
                after[i] -= c
            before, now = now, after
    return [float(c) for c in powers]


def main() -> None:
    """Print the module."""
    mp.dps = 60
    print(_HEAD)
    for name, (function, variable) in FITS.items():
        tolerance = LESS.get(name, TOLERANCE)
        found = fitted(function, variable, tolerance)
        print(f"# {len(found)}\n{name} = (\n" + "".join(f"    {c!r},\n" for c in found) + ")")


if __name__ == "__main__":
    main()

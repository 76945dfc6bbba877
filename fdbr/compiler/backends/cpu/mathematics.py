# mypy: disable-error-code="no-untyped-def"
"""Functions of one element that vectorise: the library of the kernel language.

Polynomials in the place of the C library's functions, which a loop would call one by one.
Errors are below 2 units in the last place (`exp`, `log`) or 3 (`tanh`, `sigmoid`).
"""

from math import inf, nan
from typing import Any

from fdbr.compiler.backends.cpu.kernel_functions import BUILTINS, function, intrinsic, of_real
from fdbr.compiler.backends.cpu.llvm_text import TYPES, Builder, KernelError, Value

__all__ = ["NAMES"]

f4, f8, i4, i8 = (BUILTINS[name] for name in ("f4", "f8", "i4", "i8"))
sqrt, floor, ceil = of_real("sqrt"), of_real("floor"), of_real("ceil")

# Products and sums may be contracted; nothing else is left to the compiler.
_contracted = function("contract")


@intrinsic
def _as_float(builder: Builder, bits: Value) -> Value:
    """The floating number of the same bits."""
    type = "f4" if bits.type == "i4" else "f8"
    return Value(type, builder.add(f"bitcast {bits.typed} to {TYPES[type]}"))


@intrinsic
def _as_bits(builder: Builder, x: Value) -> Value:
    """The integer of the same bits."""
    type = "i4" if x.type == "f4" else "i8"
    return Value(type, builder.add(f"bitcast {x.typed} to {TYPES[type]}"))


@intrinsic
def select(builder: Builder, condition: Value, chosen: Value, otherwise: Value) -> Value:
    """``chosen if condition else otherwise`` without a branch, which could stop vectorisation."""
    return builder.select(condition, chosen, otherwise)


@intrinsic
def _fused(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, rounded once."""
    name = f"llvm.fma.f{8 * int(a.type[1])}"
    return Value(a.type, builder.call(name, TYPES[a.type], a.typed, b.typed, c.typed))


@function()
def square(x):
    return x * x


@_contracted
def sign_f4(x):
    return select(x > 0, f4(1), select(x < 0, f4(-1), select(x == 0, f4(0), x)))  # NaN stays NaN


@_contracted
def sign_f8(x):
    return select(x > 0, 1.0, select(x < 0, -1.0, select(x == 0, 0.0, x)))


@function()
def maximum(a, b):
    return select((a > b) | (a != a), a, b)


@function()
def minimum(a, b):
    return select((a < b) | (a != a), a, b)


@function()
def isfinite(x):
    return x - x == 0


@_contracted
def exp_f4(x):
    """Cody and Waite's reduction and a polynomial (coefficients: Cephes, `expf`)."""
    none = x < f4(-104)  # too small for any number: rounding it to zero would take long
    y = minimum(select(none, f4(0), x), f4(89.0))
    n = floor(y * f4(1.4426950408889634) + f4(0.5))
    r = (y - n * f4(0.693359375)) - n * f4(-2.12194440e-4)
    p = f4(1.9875691500e-4)
    p = p * r + f4(1.3981999507e-3)
    p = p * r + f4(8.3334519073e-3)
    p = p * r + f4(4.1665795894e-2)
    p = p * r + f4(1.6666665459e-1)
    p = p * r + f4(5.0000001201e-1)
    p = p * (r * r) + r + f4(1)
    k = i4(select(y == y, n, f4(0)))
    half = k >> i4(1)
    up = _as_float(i4((half + i4(127)) << i4(23)))
    return select(none, f4(0), p * up * _as_float(i4((k - half + i4(127)) << i4(23))))


@_contracted
def exp_f8(x):
    """Cody and Waite's reduction and the Taylor polynomial of degree 13."""
    none = x < -746.0
    y = minimum(select(none, 0.0, x), 710.0)
    n = floor(y * 1.4426950408889634 + 0.5)
    r = (y - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * (r * r) + r + 1.0
    k = i8(select(y == y, n, 0.0))
    half = k >> i8(1)
    up = _as_float((half + i8(1023)) << i8(52))
    return select(none, 0.0, p * up * _as_float((k - half + i8(1023)) << i8(52)))


@_contracted
def log_f4(x):
    """Reduction to [sqrt(1/2), sqrt(2)] and a polynomial (coefficients: Cephes, `logf`)."""
    small = x < f4(1.17549435e-38)
    y = select(small, x * f4(8388608.0), x)
    bits = _as_bits(y)
    e = f4(i4((bits >> i4(23)) - i4(126))) - select(small, f4(23), f4(0))
    m = _as_float(i4((bits & i4(0x007FFFFF)) | i4(0x3F000000)))
    low = m < f4(0.70710678)
    e = e - select(low, f4(1), f4(0))
    r = select(low, m + m, m) - f4(1)
    p = f4(7.0376836292e-2)
    p = p * r - f4(1.1514610310e-1)
    p = p * r + f4(1.1676998740e-1)
    p = p * r - f4(1.2420140846e-1)
    p = p * r + f4(1.4249322787e-1)
    p = p * r - f4(1.6668057665e-1)
    p = p * r + f4(2.0000714765e-1)
    p = p * r - f4(2.4999993993e-1)
    p = p * r + f4(3.3333331174e-1)
    s = r * r
    out = r * s * p + e * f4(-2.12194440e-4) - f4(0.5) * s + r + e * f4(0.693359375)
    out = select(x > 0, out, select(x == 0, f4(-inf), f4(nan)))
    return select(x < f4(inf), out, x)


@_contracted
def log_f8(x):
    """Reduction to [sqrt(1/2), sqrt(2)] and the series in ``(m - 1) / (m + 1)``."""
    small = x < 2.2250738585072014e-308
    y = select(small, x * 18014398509481984.0, x)
    bits = _as_bits(y)
    e = f8((bits >> i8(52)) - i8(1022)) - select(small, 54.0, 0.0)
    m = _as_float((bits & i8(0x000FFFFFFFFFFFFF)) | i8(0x3FE0000000000000))
    low = m < 0.7071067811865476
    e = e - select(low, 1.0, 0.0)
    r = select(low, m + m, m) - 1.0
    s = r / (2.0 + r)
    z = s * s
    p = 1.479819860511658591e-01
    p = p * z + 1.531383769920937332e-01
    p = p * z + 1.818357216161805012e-01
    p = p * z + 2.222219843214978396e-01
    p = p * z + 2.857142874366239149e-01
    p = p * z + 3.999999999940941908e-01
    p = p * z + 6.666666666666735130e-01
    half = 0.5 * r * r
    out = e * 6.93147180369123816490e-01 - (
        (half - (s * (half + z * p) + e * 1.90821492927058770002e-10)) - r
    )
    out = select(x > 0, out, select(x == 0, -inf, nan))
    return select(x < inf, out, x)


@_contracted
def log1p_f4(x):
    u = f4(1) + x
    d = u - f4(1)
    safe = select(d == 0, f4(1), d)
    return select((d == 0) | (u == f4(inf)), x, log_f4(u) * (x / safe))


@_contracted
def log1p_f8(x):
    u = 1.0 + x
    d = u - 1.0
    safe = select(d == 0, 1.0, d)
    return select((d == 0) | (u == inf), x, log_f8(u) * (x / safe))


@_contracted
def tanh_f4(x):
    """A polynomial near 0 (coefficients: Cephes, `tanhf`), and by `exp` elsewhere."""
    a = abs(x)
    e = exp_f4(f4(-2) * a)
    s = x * x
    p = f4(-5.70498872745e-3)
    p = p * s + f4(2.06390887954e-2)
    p = p * s + f4(-5.37397155531e-2)
    p = p * s + f4(1.33314422036e-1)
    p = p * s + f4(-3.33332819422e-1)
    far = (f4(1) - e) / (f4(1) + e)
    near = a + a * s * p
    y = select(a < f4(0.625), near, far)
    return _as_float(i4(_as_bits(y) | (_as_bits(x) & i4(-2147483648))))  # the sign of x


@_contracted
def tanh_f8(x):
    """A rational function near 0 (coefficients: Cephes, `tanh`), and by `exp` elsewhere."""
    a = abs(x)
    e = exp_f8(-2.0 * a)
    s = x * x
    p = (-9.64399179425052238628e-1 * s + -9.92877231001918586564e1) * s + -1.61468768441708447952e3
    q = (
        (s + 1.12811678491632931402e2) * s + 2.23548839060100448583e3
    ) * s + 4.84406305325125486048e3
    far = (1.0 - e) / (1.0 + e)
    near = a + a * s * (p / q)
    y = select(a < 0.625, near, far)
    return _as_float(_as_bits(y) | (_as_bits(x) & i8(-9223372036854775808)))  # the sign of x


@_contracted
def sigmoid_f4(x):
    e = exp_f4(-abs(x))
    share = f4(1) / (f4(1) + e)
    return select(x >= 0, share, e * share)


@_contracted
def sigmoid_f8(x):
    e = exp_f8(-abs(x))
    share = 1.0 / (1.0 + e)
    return select(x >= 0, share, e * share)


@_contracted
def tanh_slope_f4(x):
    e = exp_f4(f4(-2) * abs(x))
    return f4(4) * e / square(f4(1) + e)


@_contracted
def tanh_slope_f8(x):
    e = exp_f8(-2.0 * abs(x))
    return 4.0 * e / square(1.0 + e)


@_contracted
def sigmoid_slope_f4(x):
    e = exp_f4(-abs(x))
    return e / square(f4(1) + e)


@_contracted
def sigmoid_slope_f8(x):
    e = exp_f8(-abs(x))
    return e / square(1.0 + e)


@_contracted
def gaussian_f4(x, rate):
    """``exp(-rate * x**2)`` with what the square loses; beyond 20 it is 0 in any case."""
    t = minimum(abs(x), f4(20))
    s = t * t
    e = exp_f4(-rate * s)
    return e - e * (rate * _fused(t, t, -s))


@_contracted
def gaussian_f8(x, rate):
    t = minimum(abs(x), 40.0)
    s = t * t
    e = exp_f8(-rate * s)
    return e - e * (rate * _fused(t, t, -s))


@_contracted
def ndtr_f4(x):
    """The upper tail as `exp` times the polynomial that `fdbr.ops.gelu` has."""
    t = minimum(abs(x), f4(40))
    share = f4(1) / (f4(1) + f4(0.3) * t)
    p = f4(0.0356760730818615)
    p = p * share + f4(-0.15720820030129942)
    p = p * share + f4(0.20636184002561103)
    p = p * share + f4(-0.05369090913730643)
    p = p * share + f4(0.12856528908570058)
    p = p * share + f4(0.09991242370183803)
    p = p * share + f4(0.12075412281845357)
    p = p * share + f4(0.11962928811694323)
    tail = p * share * gaussian_f4(t, f4(0.5))
    return select(x > 0, f4(1) - tail, tail)


@function("reassoc", "contract")
def plus(total, x):
    """The next partial sum; their order is free, so that a loop of them vectorises."""
    return total + x


def _extreme(comparison: str) -> Any:
    @intrinsic
    def partial(builder: Builder, extreme: Value, x: Value) -> Value:
        """The next partial extreme of numbers that are not NaN.

        LLVM knows it as one, and vectorises it, where the choice too has the flags that say so.
        """
        if x.type != extreme.type or x.type not in ("f4", "f8"):
            raise KernelError(f"no extreme is of {extreme.type} and {x.type}")
        better = builder.add(f"fcmp nnan nsz o{comparison} {x.typed}, {extreme.text}")
        return builder.select(Value("b1", better), x, extreme, "nnan nsz")

    return partial


larger = _extreme("gt")
smaller = _extreme("lt")


NAMES = {
    **{name: value for name, value in globals().items() if name[-3:] in ("_f4", "_f8")},
    "square": square,
    "select": select,
    "maximum": maximum,
    "minimum": minimum,
    "isfinite": isfinite,
    "plus": plus,
    "larger": larger,
    "smaller": smaller,
    "sqrt": sqrt,
    "floor": floor,
    "ceil": ceil,
    "inf": inf,
    "nan": nan,
}
"""The names that kernels may use."""

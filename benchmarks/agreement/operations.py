"""The operations of random programs, each written once for all libraries.

An operation is a function that appends itself to a program in the making, applied to values that
suit it; its first argument there, ``L``, is the library.  What has poles is kept away from them
by its arguments; what has kinks is applied to numbers that are clearly apart.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.agreement.programs import APART, Builder, Unsuitable, apart

__all__ = ["OPERATIONS"]

Operation = Callable[[Builder], None]

OPERATIONS: dict[str, list[Operation]] = {}
"""Families of operations: a program draws a family, and of it an operation."""


def _enter(family: str, operation: Operation) -> None:
    OPERATIONS.setdefault(family, []).append(operation)


def one(
    family: str, text: str, apply: Callable[..., Any], suits: Callable[[Any], Any] = lambda x: True
) -> None:
    """An operation of one value."""
    _enter(family, lambda b: b.add(apply, [b.pick(suits)], text))


def along(
    family: str,
    text: str,
    apply: Callable[..., Any],
    suits: Callable[[Any, int], Any] = lambda x, axis: True,
) -> None:
    """An operation of one value along one of its axes: ``apply(L, x, axis)``."""

    def operation(b: Builder) -> None:
        x = b.pick(lambda x: x.ndim)
        axis = b.axis(x)
        if not suits(b.values[x], axis):
            raise Unsuitable
        b.add(lambda L, x: apply(L, x, axis), [x], f"{text} axis={axis}")

    _enter(family, operation)


def two(
    family: str,
    text: str,
    apply: Callable[..., Any],
    suits: Callable[[Any, Any], Any] = lambda x, y: True,
) -> None:
    """An operation of two values."""

    def operation(b: Builder) -> None:
        x = b.pick()
        y = b.pick(lambda y: suits(b.values[x], y))
        b.add(apply, [x, y], text)

    _enter(family, operation)


# --- element by element -------------------------------------------------------------


def far(*places: float) -> Callable[[Any], bool]:
    """Whether no element of an array is near some numbers."""
    return lambda x: all((np.abs(x - place) > APART).all() for place in places)


def together(x: Any, y: Any) -> bool:
    """Whether two shapes broadcast."""
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


def together_apart(x: Any, y: Any) -> bool:
    return together(x, y) and bool((np.abs(x - y) > APART).all())


for name in "sin cos tanh atan asinh sigmoid erf expm1 square negative softplus silu".split():
    one("smooth", name, lambda L, x, name=name: getattr(L, name)(x))
one("smooth", "exp", lambda L, x: L.exp(x / 2))
one("smooth", "log", lambda L, x: L.log(x * x + 0.5))
one("smooth", "log1p", lambda L, x: L.log1p(x * x))
one("smooth", "sqrt", lambda L, x: L.sqrt(x * x + 0.5))
one("smooth", "reciprocal", lambda L, x: 1 / (x * x + 0.5))
one("smooth", "cube", lambda L, x: x**3)
one("smooth", "power", lambda L, x: (x * x + 0.5) ** -1.5)
# There is no gammaln: PyTorch 2.13's trigamma, its second derivative, is right to 1e-9 only.
one("kinked", "abs", lambda L, x: L.abs(x), far(0))
one("kinked", "relu", lambda L, x: L.relu(x), far(0))
one("kinked", "clip", lambda L, x: L.clip(x, -0.75, 0.75), far(-0.75, 0.75))
one("kinked", "where", lambda L, x: L.where(x > 0, L.sin(x), x * x), far(0))

two("binary", "add", lambda L, x, y: x + y, together)
two("binary", "subtract", lambda L, x, y: x - y, together)
two("binary", "multiply", lambda L, x, y: x * y, together)
two("binary", "divide", lambda L, x, y: x / (y * y + 0.5), together)
two("binary", "power", lambda L, x, y: (x * x + 0.5) ** L.sin(y), together)
two("binary", "atan2", lambda L, x, y: L.atan2(x, y * y + 0.5), together)
two("binary", "hypot", lambda L, x, y: L.hypot(x, y * y + 0.5), together)
two("binary", "logaddexp", lambda L, x, y: L.logaddexp(x, y), together)
two("kinked", "maximum", lambda L, x, y: L.maximum(x, y), together_apart)
two("kinked", "minimum", lambda L, x, y: L.minimum(x, y), together_apart)
two("kinked", "where", lambda L, x, y: L.where(x > y, x * y, y), together_apart)

# --- reductions ---------------------------------------------------------------------

one("reductions", "sum", lambda L, x: L.sum(x))
one("reductions", "mean", lambda L, x: L.mean(x))
along("reductions", "sum", lambda L, x, axis: L.sum(x, axis=axis))
along("reductions", "mean", lambda L, x, axis: L.mean(x, axis=axis, keepdims=True))
along("reductions", "prod", lambda L, x, axis: L.prod(x, axis=axis))
along("reductions", "var", lambda L, x, axis: L.var(x, axis=axis))
along("reductions", "std", lambda L, x, axis: L.sqrt(L.var(x, axis=axis, keepdims=True) + 0.25))
along("reductions", "logsumexp", lambda L, x, axis: L.logsumexp(x, axis=axis))
along("reductions", "cumulative_sum", lambda L, x, axis: L.cumulative_sum(x, axis=axis))
along("reductions", "cumulative_prod", lambda L, x, axis: L.cumulative_prod(x, axis=axis))
along("kinked", "max", lambda L, x, axis: L.max(x, axis=axis), apart)
along("kinked", "min", lambda L, x, axis: L.min(x, axis=axis, keepdims=True), apart)
along("kinked", "sort", lambda L, x, axis: L.sort(x, axis=axis), apart)
along("networks", "softmax", lambda L, x, axis: L.softmax(x, axis=axis))
along("networks", "log_softmax", lambda L, x, axis: L.log_softmax(x, axis=axis))
along(
    "networks",
    "normalise",
    lambda L, x, axis: (
        (x - L.mean(x, axis=axis, keepdims=True))
        / L.sqrt(L.var(x, axis=axis, keepdims=True) + 0.25)
    ),
)

# --- shapes -------------------------------------------------------------------------

one("shapes", "flat", lambda L, x: L.reshape(x, (-1,)))
one("shapes", "transpose", lambda L, x: L.matrix_transpose(x), lambda x: x.ndim > 1)
one("shapes", "reverse", lambda L, x: L.permute_dims(x, tuple(range(x.ndim))[::-1]))
one("shapes", "diagonal", lambda L, x: L.diagonal(x), lambda x: x.ndim > 1)
one("shapes", "tril", lambda L, x: L.tril(x), lambda x: x.ndim > 1)
one("shapes", "triu", lambda L, x: L.triu(x), lambda x: x.ndim > 1)
one("shapes", "tile", lambda L, x: L.tile(x, (2,)), lambda x: x.ndim == 1)
one("shapes", "broadcast", lambda L, x: L.broadcast_to(x, (2, *x.shape)))
along("shapes", "flip", lambda L, x, axis: L.flip(x, axis=axis))
along("shapes", "roll", lambda L, x, axis: L.roll(x, 1, axis=axis))
along("shapes", "expand_dims", lambda L, x, axis: L.expand_dims(x, axis=axis))
along("shapes", "unstack", lambda L, x, axis: L.unstack(x, axis=axis)[0])
along("shapes", "concat", lambda L, x, axis: L.concat([x, L.sin(x)], axis=axis))
two("shapes", "stack", lambda L, x, y: L.stack([x, y, x]), lambda x, y: x.shape == y.shape)

# --- places -------------------------------------------------------------------------


def places(b: Builder, length: int, shape: tuple[int, ...]) -> Any:
    """Random indices along an axis, some of them negative."""
    return b.rng.integers(-length, length, shape)


def gathered(b: Builder) -> None:
    x = b.pick(lambda x: x.ndim)
    index = places(b, len(b.values[x]), b.choice([(), (3,), (2, 2)]))
    b.add(lambda L, x: x[L.index(index)], [x], f"[{index.tolist()}]")


def sliced(b: Builder) -> None:
    x = b.pick(lambda x: x.ndim)
    key = b.choice([slice(1, None), slice(None, None, 2), slice(None, -1), (..., 0), (None, -1)])
    b.add(lambda L, x: x[key], [x], f"[{key}]")


def updated(b: Builder) -> None:
    x = b.pick(lambda x: x.ndim)
    y = b.pick(lambda y: y.shape == b.values[x].shape[1:])
    i, verb = int(places(b, len(b.values[x]), ())), b.choice(["set", "add"])
    b.add(lambda L, x, y: getattr(L, f"at_{verb}")(x, i, y), [x, y], f".at[{i}].{verb}")


def taken_along(b: Builder) -> None:
    x = b.pick(lambda x: x.ndim)
    axis = b.axis(x)
    index = b.rng.integers(0, b.values[x].shape[axis], b.values[x].shape)
    b.add(
        lambda L, x: L.take_along_axis(x, L.index(index), axis=axis),
        [x],
        f"take_along_axis {index.tolist()} axis={axis}",
    )


def summed_by_segment(b: Builder) -> None:
    x = b.pick(lambda x: x.ndim)
    index = b.rng.integers(0, 3, len(b.values[x]))
    b.add(lambda L, x: L.segment_sum(x, L.index(index), 3), [x], f"segment_sum {index.tolist()}")


for operation in (gathered, sliced, updated, taken_along, summed_by_segment):
    _enter("places", operation)

# --- products -----------------------------------------------------------------------


def matrices(x: Any, y: Any) -> bool:
    return (
        x.ndim > 1
        and y.ndim > 1
        and x.shape[-1] == y.shape[-2]
        and together(x[..., 0, 0], y[..., 0, 0])
    )


def same_last(x: Any, y: Any) -> bool:
    return bool(x.ndim and y.ndim and x.shape[-1] == y.shape[-1])


two("products", "matmul", lambda L, x, y: L.matmul(x, y), matrices)
two(
    "products",
    "matmul of a vector",
    lambda L, x, y: L.matmul(x, y),
    lambda x, y: x.ndim > 1 and y.ndim == 1 and x.shape[-1] == len(y),
)
two(
    "products",
    "einsum ...i,ji->...j",
    lambda L, x, y: L.einsum("...i,ji->...j", x, y),
    lambda x, y: same_last(x, y) and y.ndim == 2,
)
two(
    "products",
    "einsum ij,ij->i",
    lambda L, x, y: L.einsum("ij,ij->i", x, y),
    lambda x, y: x.ndim == 2 and x.shape == y.shape,
)
two(
    "products",
    "einsum bij,bkj->ik",
    lambda L, x, y: L.einsum("bij,bkj->ik", x, y),
    lambda x, y: x.ndim == y.ndim == 3 and x.shape[::2] == y.shape[::2],
)
two(
    "products",
    "outer",
    lambda L, x, y: L.tensordot(x, y, axes=0),
    lambda x, y: x.ndim == y.ndim == 1,
)
two(
    "products",
    "tensordot",
    lambda L, x, y: L.tensordot(x, y, axes=1),
    lambda x, y: x.ndim and y.ndim and x.shape[-1] == y.shape[0],
)
one("products", "gram", lambda L, x: L.matmul(x, L.matrix_transpose(x)), lambda x: x.ndim > 1)
one("products", "trace", lambda L, x: L.einsum("...ij,...ij->...", x, x), lambda x: x.ndim > 1)

# --- linear algebra, on matrices that are safely regular ----------------------------


def square(x: Any) -> bool:
    return x.ndim > 1 and x.shape[-1] == x.shape[-2]


def regular(L: Any, x: Any) -> Any:
    """A matrix near a multiple of the identity."""
    return L.tanh(x) / (2 * x.shape[-1]) + L.array(2 * np.eye(x.shape[-1]))


def positive(L: Any, x: Any) -> Any:
    """A positive definite matrix."""
    return L.matmul(x, L.matrix_transpose(x)) + L.array(np.eye(x.shape[-2]))


def spread(L: Any, x: Any) -> Any:
    """A matrix whose eigenvalues and singular values are far apart."""
    places = np.diag(3.0 * np.arange(1, x.shape[-1] + 1))
    return L.tanh(x) / (2 * x.shape[-1]) + L.array(places)


def symmetric(L: Any, x: Any) -> Any:
    x = spread(L, x)
    return (x + L.matrix_transpose(x)) / 2


def eigenspaces(L: Any, x: Any) -> Any:
    values, vectors = L.linalg.eigh(symmetric(L, x))
    return L.matmul(vectors * L.sin(values)[..., None, :], L.matrix_transpose(vectors))


def singular_spaces(L: Any, x: Any) -> Any:
    u, s, vh = L.linalg.svd(spread(L, x), full_matrices=False)
    return L.matmul(u * L.sin(s)[..., None, :], vh)


def squared_factors(L: Any, x: Any) -> Any:
    q, r = L.linalg.qr(regular(L, x))
    return q * q + r * r


for name, apply in (
    ("inv", lambda L, x: L.linalg.inv(regular(L, x))),
    ("det", lambda L, x: L.linalg.det(regular(L, x))),
    ("slogdet", lambda L, x: L.linalg.slogdet(regular(L, x))[1]),
    ("eigh", eigenspaces),
    ("eigvalsh", lambda L, x: L.linalg.eigvalsh(symmetric(L, x))),
    ("svd", singular_spaces),
    ("svdvals", lambda L, x: L.linalg.svdvals(spread(L, x))),
    ("qr", squared_factors),
    ("expm", lambda L, x: L.expm(x / 4)),
    ("matrix_power", lambda L, x: L.linalg.matrix_power(x, 3)),
):
    one("linalg", name, apply, square)
one("linalg", "cholesky", lambda L, x: L.linalg.cholesky(positive(L, x)), lambda x: x.ndim > 1)
one(
    "linalg",
    "pinv",
    lambda L, x: L.linalg.pinv(regular(L, x)[..., :, :-1]),
    lambda x: square(x) and x.shape[-1] > 1,
)
one(
    "linalg",
    "norm",
    lambda L, x: L.linalg.vector_norm(x, axis=-1),
    lambda x: x.ndim and (np.abs(x).max(axis=-1) > 0.1).all(),
)
two(
    "linalg",
    "solve",
    lambda L, x, y: L.linalg.solve(regular(L, x), y),
    lambda x, y: square(x) and y.ndim == x.ndim and x.shape[:-1] == y.shape[:-1],
)
two(
    "linalg",
    "solve_triangular",
    lambda L, x, y: L.solve_triangular(regular(L, x), y),
    lambda x, y: square(x) and y.ndim == x.ndim == 2 and len(x) == len(y),
)

# --- waves and windows --------------------------------------------------------------

along("windows", "fft", lambda L, x, axis: L.real(L.fft.fft(x, axis=axis)))
along("windows", "power of rfft", lambda L, x, axis: L.abs2(L.fft.rfft(x, axis=axis)))
along(
    "windows",
    "filter by fft",
    lambda L, x, axis: L.fft.irfft(
        L.fft.rfft(x, axis=axis) * (1 + 0.5j), n=x.shape[axis], axis=axis
    ),
)


def convolved(b: Builder) -> None:
    """Channels first; the kernel depends on the value too."""
    x = b.pick(lambda x: x.ndim == 2 and x.shape[1] > 1)
    channels = len(b.values[x])
    kernel, padding = b.numbers((2, channels, 2)), b.choice([0, 1])
    b.add(
        lambda L, x: L.conv(x[None], L.array(kernel) * L.mean(L.cos(x)), padding=padding)[0],
        [x],
        f"conv padding={padding}",
    )


_enter("windows", convolved)
for family, name in (("windows", "avg_pool"), ("kinked", "max_pool")):
    one(
        family,
        name,
        lambda L, x, name=name: getattr(L, name)(x[None], 2, stride=1)[0],
        lambda x: x.ndim == 2 and x.shape[1] > 1 and apart(x, 1),
    )

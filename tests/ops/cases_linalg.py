"""Cases of linear algebra: small matrices near ones that are safely regular.

Most are written once, for fdbr's and for NumPy's linear algebra.  A factorization's results are
taken in a form that does not depend on what it leaves open: the signs of singular vectors, for
instance.
"""

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import scipy.linalg

import fdbr
from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.ops import linalg
from ops.cases import Function, Strategy, case

# With what lies inside the unit interval added to it, each is regular, and neither its
# eigenvalues nor its singular values come near to each other.
SQUARE = np.array([[4.0, 1.0], [-1.0, 9.0]])
TALL = np.array([[4.0, 1.0], [-1.0, 9.0], [1.0, 1.0]])
WIDE = TALL.T.copy()


INSIDE, ANY = 0.75, 2.0  # bounds of elements


def arrays(*pairs: tuple[tuple[int, ...], float]) -> Strategy:
    """A tuple of arrays of given shapes and bounds, on a grid of binary fractions.

    There are only a few of them: matrices are alike, and decompositions take their time.
    """

    def draw(seed: int) -> tuple[Any, ...]:
        generator = np.random.default_rng(seed)
        return tuple(
            generator.integers(-8 * bound, 8 * bound, shape, endpoint=True) / 8 * (seed > 0)
            for shape, bound in pairs
        )

    return st.integers(0, 5).map(draw)


def near(x: Any, place: Any) -> Any:
    """A matrix near another one, in the dtype and array module of the first."""
    return x + array_module(x).asarray(place.astype(x.dtype))


def joined(concat: Function, out: Any) -> Any:
    """The real and imaginary parts of all results in one row."""
    parts = out if isinstance(out, tuple | list) else [out]
    return concat(
        [
            half.reshape(-1)
            for part in parts
            for half in ([part.real, part.imag] if part.dtype.kind == "c" else [part])
        ]
    )


def of_matrix(
    op: str, place: Any, f: Function, setting: str = "", reference: Any = np.linalg
) -> None:
    """``f(linalg, x)`` of one real matrix near a place."""
    case(
        f"linalg.{op}",
        arrays((place.shape, INSIDE)),
        lambda x: joined(np.concatenate, f(reference, x + place)),
        lambda x: joined(ops.concat, f(linalg, near(x, place))),
        setting,
    )


def of_complex_matrix(op: str, place: Any, f: Function, reference: Any = np.linalg) -> None:
    case(
        f"linalg.{op}",
        arrays((place.shape, INSIDE), (place.shape, INSIDE)),
        lambda x, y: joined(np.concatenate, f(reference, x + place + 1j * y)),
        lambda x, y: joined(ops.concat, f(linalg, near(x, place) + 1j * y)),
        "complex",
    )


def _one_by_one(name: str) -> Function:
    f = getattr(scipy.linalg, name)
    return lambda x: f(x) if x.ndim == 2 else np.stack([f(one) for one in x])


_each_by_scipy = SimpleNamespace(sqrtm=_one_by_one("sqrtm"), logm=_one_by_one("logm"))


def adjoint(x: Any) -> Any:
    return x.mT.conj()


def size(z: Any) -> Any:
    return (z * z.conj()).real


# --- factorizations -----------------------------------------------------------------


def whole_qr(la: Any, x: Any) -> Any:
    q, r = la.qr(x, mode="complete")
    rest = q[..., 2:]
    return q[..., :2], r, rest @ adjoint(rest)


def eigh(la: Any, x: Any) -> Any:
    values, vectors = la.eigh(x + adjoint(x))
    return values, size(vectors), (vectors * values[..., None, :] ** 2) @ adjoint(vectors) / 64


def eig(la: Any, x: Any) -> Any:
    values, vectors = la.eig(x)
    weights = size(vectors)
    return (
        (values**3).sum(axis=-1),
        (values * values[..., None] * weights).sum(axis=-1),
        (vectors * values[..., None, :] ** 2) @ la.inv(vectors),
    )


def svd(la: Any, x: Any) -> Any:
    u, s, vh = la.svd(x, full_matrices=False)
    return s, size(u), size(vh), u @ vh


def whole_svd(la: Any, x: Any) -> Any:
    u, s, vh = la.svd(x)
    k = s.shape[-1]
    left, right = u[..., k:], vh[..., k:, :]
    return size(u[..., :k]), s, size(vh[..., :k, :]), left @ adjoint(left), adjoint(right) @ right


for op, f, places in (
    ("cholesky", lambda la, x: la.cholesky(x @ adjoint(x)), (SQUARE,)),
    ("eigh", eigh, (SQUARE,)),
    ("eigvalsh", lambda la, x: la.eigvalsh(x + adjoint(x)), (SQUARE,)),
    ("svd", svd, (SQUARE, TALL, WIDE)),
    ("svdvals", lambda la, x: la.svdvals(x), (TALL,)),
):
    for place, setting in zip(places, ("", "tall", "wide"), strict=False):
        of_matrix(op, place, f, setting)
    of_complex_matrix(op, places[-1], f)
of_matrix("cholesky", SQUARE, lambda la, x: la.cholesky(x @ x.mT, upper=True), "upper")
for place, setting in ((SQUARE, ""), (TALL, "tall"), (WIDE, "wide")):
    of_matrix("qr", place, lambda la, x: la.qr(x), setting)
of_matrix("qr", TALL, whole_qr, "complete")
# The signs of complex factors jump where elements are real.
of_complex_matrix("qr", SQUARE, lambda la, x: [size(part) for part in la.qr(x)])
of_matrix("svd", TALL, whole_svd, "full")
of_matrix("svd", WIDE, whole_svd, "full, wide")
of_matrix("eigh", np.stack([SQUARE, SQUARE.T]), eigh, "stack")
for op, f in (
    ("eig", eig),
    ("eigvals", lambda la, x: (la.eigvals(x) ** 2).sum(axis=-1)),
):
    of_matrix(op, SQUARE, lambda la, x, f=f: [part + 0j for part in _list(f(la, x))])
    of_matrix(op, np.array([[1.0, -4.0], [4.0, 1.0]]), f, "turning")
    of_complex_matrix(op, SQUARE, f)


def _list(parts: Any) -> Any:
    return parts if isinstance(parts, tuple) else [parts]


# --- inverses, equations, determinants ----------------------------------------------

for op, f, place in (
    ("inv", lambda la, x: la.inv(x), SQUARE),
    ("det", lambda la, x: la.det(x), SQUARE),
    ("slogdet", lambda la, x: la.slogdet(x), SQUARE),
    ("pinv", lambda la, x: la.pinv(x), TALL),
):
    of_matrix(op, place, f)
    of_complex_matrix(op, place, f)
of_matrix("pinv", WIDE, lambda la, x: la.pinv(x), "wide")
of_matrix("pinv", TALL, lambda la, x: la.pinv(x[:, :1] @ x[:1]), "of rank 1")
for exponent in (3, -2):
    of_matrix(
        "matrix_power", SQUARE, lambda la, x, n=exponent: la.matrix_power(x, n), str(exponent)
    )
of_matrix("det", np.zeros((1, 1)), lambda la, x: la.det(x), "of a number")
of_matrix("det", np.stack([SQUARE, SQUARE]), lambda la, x: la.det(x @ x), "stack")
case(
    "linalg.det",
    arrays(((2,), ANY), ((3,), ANY)),
    lambda x, y: np.float64(0),
    lambda x, y: linalg.det(ops.concat([x, y[:1]])[:, None] * y),
    "of rank 1",
)
case(
    "linalg.det",
    arrays(((2, 2), INSIDE)),
    lambda x: np.linalg.det(x + SQUARE) * np.linalg.inv(x + SQUARE).T,
    lambda x: fdbr.grad(linalg.det)(near(x, SQUARE)),
    "its cofactors",
)

SYSTEMS = (
    ("", (2, 2), (2, 1)),
    ("vector", (2, 2), (2,)),
    ("stack", (2, 2, 2), (2, 1)),
    ("stack by one", (2, 2), (2, 2, 2)),
)
for setting, shape, right in SYSTEMS:
    place = np.broadcast_to(SQUARE, shape)
    case(
        "linalg.solve",
        arrays((shape, INSIDE), (right, ANY)),
        lambda a, b, place=place: np.linalg.solve(a + place, b),
        lambda a, b, place=place: linalg.solve(near(a, place), b),
        setting,
    )
for setting, shape, right in (("", (3, 2), (3, 2)), ("vector", (3, 2), (3,))):
    case(
        "linalg.lstsq",
        arrays((shape, INSIDE), (right, ANY)),
        lambda a, b: np.concatenate(
            [part.reshape(-1) for part in np.linalg.lstsq(a + TALL, b, rcond=None)[:2]]
        ),
        lambda a, b: joined(ops.concat, linalg.lstsq(near(a, TALL), b)[:2]),
        setting,
    )
for setting, params in (
    ("", {}),
    ("lower", {"lower": True}),
    ("unit diagonal", {"unit_diagonal": True}),
    ("lower, adjoint, unit diagonal", {"lower": True, "trans": "C", "unit_diagonal": True}),
):
    case(
        "linalg.solve_triangular",
        arrays(((2, 2), INSIDE), ((2, 1), ANY)),
        lambda a, b, p=params: scipy.linalg.solve_triangular(a + SQUARE, b, **p),
        lambda a, b, p=params: linalg.solve_triangular(near(a, SQUARE), b, **p),
        setting,
    )
case(
    "linalg.solve_triangular",
    arrays(((2, 2, 2), INSIDE), ((2, 1), ANY)),
    lambda a, b: np.linalg.solve(np.triu(a + SQUARE), b),
    lambda a, b: linalg.solve_triangular(near(a, SQUARE), b),
    "stack",
)
for setting, scale in (("", 0.0), ("large", 4.0)):
    case(
        "linalg.expm",
        arrays(((2, 2), INSIDE)),
        lambda x, c=scale: scipy.linalg.expm(x + c * np.eye(2)[::-1]),
        lambda x, c=scale: linalg.expm(near(x, c * np.eye(2)[::-1])),
        setting,
    )

for op in ("sqrtm", "logm"):
    for setting, place in (
        ("", SQUARE),
        ("turning", np.array([[2.0, -4.0], [4.0, 2.0]])),
        ("alike", np.array([[9.0, 1.0], [0.0, 9.0]])),
        ("near 1", np.eye(2) + np.array([[0.0, 1.0], [-1.0, 0.0]])),
        ("stack", np.stack([SQUARE, SQUARE.T])),
    ):
        of_matrix(op, place, lambda la, x, op=op: getattr(la, op)(x), setting, _each_by_scipy)
    of_complex_matrix(op, SQUARE, lambda la, x, op=op: getattr(la, op)(x), _each_by_scipy)

# --- norms --------------------------------------------------------------------------

UNEVEN = np.array([[1.5, -3.0], [-6.0, 20.0]])  # no size, or sum of sizes, is near another

for order in ("fro", "nuc", 1, -2):
    of_matrix("matrix_norm", UNEVEN, lambda la, x, p=order: la.matrix_norm(x, ord=p), str(order))
for order in (2, 3, np.inf):
    of_matrix(
        "vector_norm", UNEVEN, lambda la, x, p=order: la.vector_norm(x, ord=p, axis=0), str(order)
    )
of_matrix("norm", UNEVEN, lambda la, x: la.norm(x, ord=1, axis=1, keepdims=True))
of_complex_matrix("matrix_norm", UNEVEN, lambda la, x: la.matrix_norm(x, keepdims=True))

# --- products -----------------------------------------------------------------------

for op, x, y in (("cross", (2, 1, 3), (2, 3)), ("outer", (2,), (3,)), ("kron", (2,), (2, 1, 2))):
    case(f"linalg.{op}", arrays((x, ANY), (y, ANY)), getattr(np, op), getattr(linalg, op))
case(
    "linalg.multi_dot",
    arrays(((3,), ANY), ((3, 2), ANY), ((2, 2), ANY)),
    lambda *xs: np.linalg.multi_dot(xs),
    lambda *xs: linalg.multi_dot(xs),
)
of_matrix("trace", np.zeros((2, 2, 3)), lambda la, x: la.trace(x, offset=1))

"""A use of an operation in both libraries, and the arrays it is applied to."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np

__all__ = ["Draw", "Program", "same"]

_SIDE = 128  # of square matrices at the most; larger sizes have more matrices


class Draw:
    """Random arrays in float32 of about ``count`` elements, the same in every process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._generator = np.random.default_rng(0)

    def shape(self, axes: int) -> tuple[int, ...]:
        """Lengths of so many axes, about equal, with as many elements as there shall be."""
        lengths = []
        rest = self.count
        for left in range(axes, 0, -1):
            most = rest if left == 1 else int(rest ** (1 / left) + 1e-6)
            lengths.append(next(n for n in range(most, 0, -1) if rest % n == 0))
            rest //= lengths[-1]
        return tuple(lengths)

    def normal(self, *shape: int) -> np.ndarray:
        """Of mean 0 and variance 1; by default along one axis."""
        return self._generator.standard_normal(shape or (self.count,), dtype=np.float32)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Between two bounds; by default along one axis."""
        return self._generator.uniform(low, high, shape or (self.count,)).astype(np.float32)

    def matrix(self) -> np.ndarray:
        """Normal, along two axes."""
        return self.normal(*self.shape(2))

    def images(self) -> np.ndarray:
        """Normal, of shape ``(N, C, H, W)``."""
        return self.normal(*self.shape(4))

    def squares(self) -> np.ndarray:
        """Square matrices that are well conditioned, of shape ``(count, n, n)``."""
        side = min(math.isqrt(self.count), _SIDE)
        matrices = self.normal(max(1, self.count // side**2), side, side) / np.float32(side**0.5)
        return matrices + 3 * np.eye(side, dtype=np.float32)

    def positive_definite(self) -> np.ndarray:
        """Symmetric matrices with positive eigenvalues that are far apart."""
        matrices = self.squares()
        apart = np.diag(np.arange(1, matrices.shape[-1] + 1, dtype=np.float32))
        return matrices @ matrices.swapaxes(-1, -2) + apart

    def complex(self, *shape: int) -> np.ndarray:
        """Complex normal numbers; by default along one axis."""
        return self.normal(*shape) + 1j * self.normal(*shape)

    def integers(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Indices; by default along one axis."""
        return self._generator.integers(low, high, shape or (self.count,))

    def truths(self, *shape: int) -> np.ndarray:
        """Truth values; by default along one axis."""
        return self.normal(*shape) > 0


@attrs.frozen
class Program:
    """One use of one operation.

    Attributes
    ----------
    name
        The operation's public name, and after a slash what distinguishes this use of it.
    draw
        A function from a `Draw` to the operands.  Floating ones are differentiated.
    ours
        ``ours(ops, *operands)`` is the result in fdbr: an array, or several.
    theirs
        ``theirs(torch, *operands)`` is the same in PyTorch.
    gradient
        Whether there is one.
    alike
        Whether both must compute the same; not so for what is random or not determined.
    """

    name: str
    draw: Callable[[Draw], tuple[Any, ...]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    gradient: bool = True
    alike: bool = True

    @property
    def operation(self) -> str:
        """The public name."""
        return self.name.partition("/")[0]


def same(
    names: str | Iterable[str], draw: Callable[[Draw], tuple[Any, ...]], **more: Any
) -> list[Program]:
    """Programs that apply a function to the operands and nothing else.

    A name may be followed by a colon and PyTorch's name, with a path such as ``special.``.
    """
    names = names.split() if isinstance(names, str) else names
    pairs = [name.split(":") if ":" in name else (name, name) for name in names]
    return [Program(ours, draw, _applied(ours), _applied(theirs), **more) for ours, theirs in pairs]


def _applied(path: str) -> Callable[..., Any]:
    parts = path.split(".")

    def apply(library: Any, *operands: Any) -> Any:
        for part in parts:
            library = getattr(library, part)
        return library(*operands)

    return apply

"""Products of cotangents and partial derivatives, which back ends may compute in one pass."""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr.core.routine import Routine
from fdbr.ops.declare.rules import Function

__all__ = ["cotangent_product", "only_cotangent_product", "product_of", "summed_product"]


@Routine
def cotangent_product(
    ct: Any, partial: Function, saved: Sequence[Any], heavy: bool | str, fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(*saved)``.

    ``fixed`` are the positions in ``saved`` of keywords, whose values a kernel is compiled for.
    """
    return ct * partial(*saved)


@Routine
def summed_product(
    ct: Any, partial: Function, saved: Sequence[Any], shape: tuple[int, ...], fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(*saved)``, summed to the shape of an operand that was broadcast.

    Return `None` if that takes as long as the product and the sum one after the other.
    """
    return None


@Routine
def only_cotangent_product(
    ct: Any,
    references: int,
    partial: Function,
    saved: Any,
    heavy: bool | str,
    fixed: frozenset[int],
) -> Any:
    """Return ``ct * partial(saved)``, where no other rule reads the cotangent ``ct``.

    ``references`` is the number of references to ``ct`` that the vjp rule counts.
    """
    return ct * partial(saved)


def product_of(
    partial: Function, saved: Sequence[Any], fixed: frozenset[int]
) -> tuple[list[int], tuple[Any, ...], Callable[..., Any]]:
    """Return the positions of operands in ``saved``, the other values, and the product.

    The product is a function of the cotangent and the operands.
    """
    positions = [i for i in range(len(saved)) if i not in fixed]
    kept = tuple([(i, saved[i]) for i in fixed])

    def product(ct: Any, *nodes: Any) -> Any:
        whole = dict(kept) | dict(zip(positions, nodes, strict=True))
        return ct * partial(*(whole[i] for i in range(len(saved))))

    return positions, kept, product

"""The vector registers of this processor: their length and number."""

from fdbr.backends.cpu.runtime.machine import vector_bytes

__all__ = ["product_tiles", "inner_tile", "lanes", "product_tile"]


def product_tile() -> tuple[int, int]:
    """Return the largest number of rows and of vectors of a tile of a matrix product."""
    return (8, 2) if vector_bytes() == 64 else (4, 2)


def product_tiles() -> tuple[tuple[int, int], ...]:
    """Return the rows and vectors of the tiles of products that fill the registers."""
    return ((6, 4), (8, 3), (4, 4)) if vector_bytes() == 64 else ((3, 3), (4, 2), (2, 3))


def inner_tile() -> tuple[int, int]:
    """Return the rows and columns of the tiles of inner products."""
    return (4, 6) if vector_bytes() == 64 else (2, 4)


def lanes(code: str) -> int:
    """Return the number of elements of a dtype in a vector."""
    return vector_bytes() // int(code[-1])

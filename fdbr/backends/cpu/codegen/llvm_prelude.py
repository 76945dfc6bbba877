"""The beginnings of kernels in LLVM's language, and the words of their tables."""

from collections.abc import Container, Iterable, Sequence

__all__ = ["HEAD", "words"]

HEAD = "define void @kernel(ptr noalias %table, i64 %start, i64 %stop, i64 %part) {\nentry:\n"
"""The head of a kernel, which does the units of work from ``start`` to ``stop``."""


def words(
    table: Sequence[str], addresses: Container[str], wanted: Iterable[str] | None = None
) -> str:
    """Instructions that load words of a kernel's table, each to a register of its name.

    The address of the word itself is in another register, ``NAME.at``.

    Parameters
    ----------
    table
        The names of all words, in their order.
    addresses
        The names of those that are addresses; the others are integers.
    wanted
        The names of those to load; by default all.

    Examples
    --------
    >>> print(words(["x", "count"], ["x"], ["count"]))
      %count.at = getelementptr i64, ptr %table, i64 1
      %count = load i64, ptr %count.at
    """
    lines = []
    for name in table if wanted is None else wanted:
        kind = "ptr" if name in addresses else "i64"
        lines.append(f"  %{name}.at = getelementptr i64, ptr %table, i64 {table.index(name)}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}.at")
    return "\n".join(lines)

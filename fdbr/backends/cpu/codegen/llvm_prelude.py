"""The LLVM instructions at the start of kernels that load the entries of their tables."""

from collections.abc import Container, Iterable, Sequence

__all__ = ["HEAD", "words"]

HEAD = "define void @kernel(ptr noalias %table, i64 %start, i64 %stop, i64 %part) {\nentry:\n"
"""The head of a kernel, which does the units of work from ``start`` to ``stop``."""


def words(
    table: Sequence[str],
    addresses: Container[str],
    wanted: Iterable[str] | None = None,
    base: str = "table",
) -> str:
    """Return instructions that load entries of a kernel's table into registers of the same name.

    The address of the entry itself is in another register, ``NAME.at``.

    Parameters
    ----------
    table
        The names of all entries, in order.
    addresses
        The names of the entries that are addresses; the others are integers.
    wanted
        The names of the entries to load; by default all.
    base
        The register with the table's address.

    Examples
    --------
    >>> print(words(["x", "count"], ["x"], ["count"]))
      %count.at = getelementptr i64, ptr %table, i64 1
      %count = load i64, ptr %count.at
    """
    lines = []
    for name in table if wanted is None else wanted:
        kind = "ptr" if name in addresses else "i64"
        lines.append(f"  %{name}.at = getelementptr i64, ptr %{base}, i64 {table.index(name)}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}.at")
    return "\n".join(lines)

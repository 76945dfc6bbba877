"""Non-temporal stores, for results so large that they would leave the caches before they are read.

An ordinary store first reads the cache line that it changes, and evicts other lines; these stores
do neither.
"""

from fdbr.backends.cpu.codegen.kernel_functions import function, intrinsic
from fdbr.backends.cpu.codegen.language import address
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import Value

__all__ = ["NAMES"]

# bytes of one store: allocators align memory to that, and stores are combined to whole lines
_BYTES = 16


@intrinsic
def _store_past(builder: Builder, to: Value, source: Value) -> None:
    """Store 16 bytes at an aligned address, from any address."""
    vector = f"<{_BYTES} x i8>"
    value = builder.add(f"load {vector}, ptr {builder.pointer(source)}, align 1")
    mark = builder.module.note("!{i32 1}")
    place = builder.pointer(to)
    builder.do(f"store {vector} {value}, ptr {place}, align {_BYTES}, !nontemporal {mark}")


@function()
def stream(out, first, scratch, start, count, size):  # type: ignore[no-untyped-def]
    """Copy elements of some size by non-temporal stores."""
    to = address(out) + first * size
    head = min((-to) % _BYTES // size, count)
    whole = (count - head) * size // _BYTES
    for i in range(head):
        out[first + i] = scratch[start + i]
    source = address(scratch) + (start + head) * size
    for i in range(whole):
        _store_past(to + head * size + i * _BYTES, source + i * _BYTES)
    for i in range(head + whole * _BYTES // size, count):
        out[first + i] = scratch[start + i]


@intrinsic
def settle(builder: Builder) -> None:
    """Emit a fence that orders non-temporal stores before what follows."""
    builder.do("fence seq_cst")


NAMES = {"stream": stream, "settle": settle}
"""The names of the kernel language."""

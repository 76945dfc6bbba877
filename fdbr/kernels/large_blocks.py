"""Memory of large arrays, kept for the next ones.

A large array is new memory each time: the allocator asks the system for it, gives it back with the
array, and the first touch of each page costs a fault, in which the system clears it.  Programs
make arrays of the same sizes in every step.  So NumPy is given a handler of memory (NEP 49) that
keeps large blocks that were freed, joins those that lie side by side, and makes arrays of them.

What is kept and what is in use are together never more than what was in use at once before, so
that the process needs no more memory at its peak; and of what is kept the system takes pages back
where memory is short (``MADV_FREE``).  Small blocks are those of NumPy's own handler.

Large blocks lie in one region of addresses, by which they are known.  A block has a header with its
size, and free ranges are either kept or absent: the system has their pages.
"""

import contextlib
import ctypes
import functools
import mmap
import os
import sys
from contextvars import ContextVar
from typing import Any

import numpy as np

from fdbr.kernels.machine import optimized_address

__all__ = ["LEAST", "keep", "kept_bytes"]

LEAST = 4 << 20  # bytes of a large array
_HEADER = 64
_HUGE = 2 << 20  # bytes of a large page
_RANGES = 1024
_SPACIOUS = 4  # times the memory of the machine: addresses, which are no memory
_ABSENT, _KEPT = 0, 1
_LEND = 8  # MADV_FREE

# The words of the state: whether somebody changes it; bytes in use, the most that ever were, and
# those that are kept, and their bound; the context and the functions of NumPy's own handler; the
# region's begin and end, the end of what was ever used of it, and the bytes of the machine; and the
# free ranges, each with its begin, its bytes (or 0 in an empty slot), and whether it is kept.
_LIVE, _MOST, _HELD, _BOUND, _OWN, _BEGIN, _END, _TOP, _MACHINE, _FIRST = (
    *(1, 2, 3, 4, 5, 10, 11),
    *(12, 13, 14),
)
_WORDS = _FIRST + 3 * _RANGES

# Words, and what is in use.
_STATE = f"""
declare i32 @madvise(ptr, i64, i32)
declare i32 @sched_yield()
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

define internal i64 @read(ptr %state, i64 %place) {{
  %at = getelementptr i64, ptr %state, i64 %place
  %value = load i64, ptr %at
  ret i64 %value
}}

define internal void @write(ptr %state, i64 %place, i64 %value) {{
  %at = getelementptr i64, ptr %state, i64 %place
  store i64 %value, ptr %at
  ret void
}}

define internal void @change(ptr %state, i64 %place, i64 %more) {{
  %value = call i64 @read(ptr %state, i64 %place)
  %sum = add i64 %value, %more
  call void @write(ptr %state, i64 %place, i64 %sum)
  ret void
}}

define internal ptr @own(ptr %state, i64 %place) {{
  %at = getelementptr ptr, ptr %state, i64 %place
  %value = load ptr, ptr %at
  ret ptr %value
}}

define internal void @lock(ptr %state) {{
entry:
  br label %try
try:
  %before = atomicrmw xchg ptr %state, i64 1 acquire, align 8
  %mine = icmp eq i64 %before, 0
  br i1 %mine, label %done, label %wait
wait:
  %yielded = call i32 @sched_yield()
  br label %try
done:
  ret void
}}

define internal void @unlock(ptr %state) {{
  store atomic i64 0, ptr %state release, align 8
  ret void
}}

define internal i1 @is.large(ptr %state, ptr %block) {{
  %address = ptrtoint ptr %block to i64
  %begin = call i64 @read(ptr %state, i64 {_BEGIN})
  %end = call i64 @read(ptr %state, i64 {_END})
  %behind = icmp uge i64 %address, %begin
  %before = icmp ult i64 %address, %end
  %is = and i1 %behind, %before
  ret i1 %is
}}
"""

# Free ranges.  `pick` gives the place of a range of a kind with %low bytes at least: the one with
# the fewest of them times %sign; or else 0.  `put` joins a range with those of its kind on both
# sides, and forgets it where it cannot be written down.  `shrink` gives the ends of the largest
# ranges back until %room bytes are kept.
_FREE = f"""
define internal i64 @pick(ptr %state, i64 %kind, i64 %low, i64 %sign) {{
entry:
  br label %look
look:
  %place = phi i64 [{_FIRST}, %entry], [%following, %next]
  %found = phi i64 [0, %entry], [%found.now, %next]
  %best = phi i64 [{sys.maxsize}, %entry], [%best.now, %next]
  %inside = icmp slt i64 %place, {_WORDS}
  br i1 %inside, label %next, label %done
next:
  %following = add i64 %place, 3
  %size.at = add i64 %place, 1
  %size = call i64 @read(ptr %state, i64 %size.at)
  %kind.at = add i64 %place, 2
  %its = call i64 @read(ptr %state, i64 %kind.at)
  %value = mul i64 %size, %sign
  %alike = icmp eq i64 %its, %kind
  %enough = icmp sge i64 %size, %low
  %better = icmp slt i64 %value, %best
  %fits = and i1 %enough, %better
  %take = and i1 %fits, %alike
  %found.now = select i1 %take, i64 %place, i64 %found
  %best.now = select i1 %take, i64 %value, i64 %best
  br label %look
done:
  ret i64 %found
}}

define internal i64 @carve(ptr %state, i64 %place, i64 %size) {{
  %begin = call i64 @read(ptr %state, i64 %place)
  call void @change(ptr %state, i64 %place, i64 %size)
  %size.at = add i64 %place, 1
  %less = sub i64 0, %size
  call void @change(ptr %state, i64 %size.at, i64 %less)
  ret i64 %begin
}}

define internal void @put(ptr %state, i64 %begin.given, i64 %size.given, i64 %kind) {{
entry:
  br label %look
look:
  %place = phi i64 [{_FIRST}, %entry], [%following, %next], [%following, %join]
  %empty = phi i64 [0, %entry], [%empty.now, %next], [%place, %join]
  %begin = phi i64 [%begin.given, %entry], [%begin, %next], [%least, %join]
  %size = phi i64 [%size.given, %entry], [%size, %next], [%sum, %join]
  %inside = icmp slt i64 %place, {_WORDS}
  br i1 %inside, label %next, label %end
next:
  %following = add i64 %place, 3
  %its.begin = call i64 @read(ptr %state, i64 %place)
  %size.at = add i64 %place, 1
  %its.size = call i64 @read(ptr %state, i64 %size.at)
  %kind.at = add i64 %place, 2
  %its.kind = call i64 @read(ptr %state, i64 %kind.at)
  %none = icmp eq i64 %its.size, 0
  %empty.now = select i1 %none, i64 %place, i64 %empty
  %its.end = add i64 %its.begin, %its.size
  %end.here = add i64 %begin, %size
  %left = icmp eq i64 %its.end, %begin
  %right = icmp eq i64 %its.begin, %end.here
  %beside = or i1 %left, %right
  %alike = icmp eq i64 %its.kind, %kind
  %some = xor i1 %none, true
  %both = and i1 %beside, %alike
  %joins = and i1 %both, %some
  br i1 %joins, label %join, label %look
join:
  call void @write(ptr %state, i64 %size.at, i64 0)
  %least = call i64 @llvm.umin.i64(i64 %begin, i64 %its.begin)
  %sum = add i64 %size, %its.size
  br label %look
end:
  %stop = add i64 %begin, %size
  %top = call i64 @read(ptr %state, i64 {_TOP})
  %last = icmp eq i64 %stop, %top
  %absent = icmp eq i64 %kind, {_ABSENT}
  %lower = and i1 %last, %absent
  br i1 %lower, label %descend, label %store
descend:
  call void @write(ptr %state, i64 {_TOP}, i64 %begin)
  ret void
store:
  %full = icmp eq i64 %empty, 0
  br i1 %full, label %forget, label %note
note:
  call void @write(ptr %state, i64 %empty, i64 %begin)
  %new.size.at = add i64 %empty, 1
  call void @write(ptr %state, i64 %new.size.at, i64 %size)
  %new.kind.at = add i64 %empty, 2
  call void @write(ptr %state, i64 %new.kind.at, i64 %kind)
  ret void
forget:
  %pages = inttoptr i64 %begin to ptr
  %given = call i32 @madvise(ptr %pages, i64 %size, i32 {mmap.MADV_DONTNEED})
  %counted = mul i64 %size, %kind
  %less = sub i64 0, %counted
  call void @change(ptr %state, i64 {_HELD}, i64 %less)
  ret void
}}

define internal void @shrink(ptr %state, i64 %room) {{
entry:
  br label %look
look:
  %held = call i64 @read(ptr %state, i64 {_HELD})
  %over = sub i64 %held, %room
  %any = icmp sgt i64 %over, 0
  br i1 %any, label %search, label %done
search:
  %place = call i64 @pick(ptr %state, i64 {_KEPT}, i64 1, i64 -1)
  %none = icmp eq i64 %place, 0
  br i1 %none, label %done, label %free
free:
  %size.at = add i64 %place, 1
  %size = call i64 @read(ptr %state, i64 %size.at)
  %first = call i64 @read(ptr %state, i64 %place)
  %end = add i64 %first, %size
  %some = sub i64 %end, %over
  %down = and i64 %some, {-_HUGE}
  %from = call i64 @llvm.smax.i64(i64 %down, i64 %first)
  %part = sub i64 %end, %from
  %less = sub i64 0, %part
  call void @change(ptr %state, i64 %size.at, i64 %less)
  call void @change(ptr %state, i64 {_HELD}, i64 %less)
  %pages = inttoptr i64 %from to ptr
  %given = call i32 @madvise(ptr %pages, i64 %part, i32 {mmap.MADV_DONTNEED})
  call void @put(ptr %state, i64 %from, i64 %part, i64 {_ABSENT})
  br label %look
done:
  ret void
}}
"""

# A large block, of a kept range, or of an absent one for which kept ones make room, so that there
# is never more than there ever was; `null` where there are no addresses left.
_MAKE = f"""
define internal ptr @make(ptr %state, i64 %size, i1 %zeros) {{
entry:
  %longer = add i64 %size, {_HEADER + mmap.PAGESIZE - 1}
  %total = and i64 %longer, {-mmap.PAGESIZE}
  call void @lock(ptr %state)
  %kept = call i64 @pick(ptr %state, i64 {_KEPT}, i64 %total, i64 1)
  %one = icmp ne i64 %kept, 0
  br i1 %one, label %old, label %new
old:
  %old.begin = call i64 @carve(ptr %state, i64 %kept, i64 %total)
  %less = sub i64 0, %total
  call void @change(ptr %state, i64 {_HELD}, i64 %less)
  br label %made
new:
  %most.before = call i64 @read(ptr %state, i64 {_MOST})
  %live.before = call i64 @read(ptr %state, i64 {_LIVE})
  %without = sub i64 %most.before, %live.before
  %without.it = sub i64 %without, %total
  %room = call i64 @llvm.smax.i64(i64 %without.it, i64 0)
  call void @shrink(ptr %state, i64 %room)
  %absent = call i64 @pick(ptr %state, i64 {_ABSENT}, i64 %total, i64 1)
  %some = icmp ne i64 %absent, 0
  br i1 %some, label %again, label %further
again:
  %again.begin = call i64 @carve(ptr %state, i64 %absent, i64 %total)
  br label %made
further:
  %top = call i64 @read(ptr %state, i64 {_TOP})
  %top.now = add i64 %top, %total
  %end = call i64 @read(ptr %state, i64 {_END})
  %beyond = icmp ugt i64 %top.now, %end
  br i1 %beyond, label %none, label %rise
rise:
  call void @write(ptr %state, i64 {_TOP}, i64 %top.now)
  br label %made
none:
  call void @unlock(ptr %state)
  ret ptr null
made:
  %begin = phi i64 [%old.begin, %old], [%again.begin, %again], [%top, %rise]
  %dirty = phi i1 [%zeros, %old], [false, %again], [false, %rise]
  call void @change(ptr %state, i64 {_LIVE}, i64 %total)
  %live = call i64 @read(ptr %state, i64 {_LIVE})
  %most = call i64 @read(ptr %state, i64 {_MOST})
  %most.now = call i64 @llvm.smax.i64(i64 %live, i64 %most)
  call void @write(ptr %state, i64 {_MOST}, i64 %most.now)
  call void @unlock(ptr %state)
  %header = inttoptr i64 %begin to ptr
  store i64 %total, ptr %header
  %block = getelementptr i8, ptr %header, i64 {_HEADER}
  br i1 %dirty, label %clear, label %done
clear:
  %cleared = call ptr @memset(ptr %block, i32 0, i64 %size)
  br label %done
done:
  ret ptr %block
}}

define internal void @keep(ptr %state, ptr %block) {{
entry:
  %header = getelementptr i8, ptr %block, i64 -{_HEADER}
  %size = load i64, ptr %header
  %less = sub i64 0, %size
  %begin = ptrtoint ptr %header to i64
  %pages = inttoptr i64 %begin to ptr
  call void @lock(ptr %state)
  call void @change(ptr %state, i64 {_LIVE}, i64 %less)
  call void @change(ptr %state, i64 {_HELD}, i64 %size)
  %lent = call i32 @madvise(ptr %pages, i64 %size, i32 {_LEND})
  call void @put(ptr %state, i64 %begin, i64 %size, i64 {_KEPT})
  %live = call i64 @read(ptr %state, i64 {_LIVE})
  %most = call i64 @read(ptr %state, i64 {_MOST})
  %bound = call i64 @read(ptr %state, i64 {_BOUND})
  %over = sub i64 %most, %live
  %room = call i64 @llvm.smin.i64(i64 %over, i64 %bound)
  call void @shrink(ptr %state, i64 %room)
  call void @unlock(ptr %state)
  ret void
}}

define internal i1 @wanted(ptr %state, i64 %size) {{
  %machine = call i64 @read(ptr %state, i64 {_MACHINE})
  %large = icmp uge i64 %size, {LEAST}
  %there = icmp ult i64 %size, %machine
  %is = and i1 %large, %there
  ret i1 %is
}}
"""

# The functions of the handler.
_HANDLER = f"""
define internal ptr @malloc.own(ptr %state, i64 %size) {{
entry:
  %large = call i1 @wanted(ptr %state, i64 %size)
  br i1 %large, label %make, label %usual
make:
  %block = call ptr @make(ptr %state, i64 %size, i1 false)
  %none = icmp eq ptr %block, null
  br i1 %none, label %usual, label %done
done:
  ret ptr %block
usual:
  %context = call ptr @own(ptr %state, i64 {_OWN})
  %function = call ptr @own(ptr %state, i64 {_OWN + 1})
  %given = call ptr %function(ptr %context, i64 %size)
  ret ptr %given
}}

define internal ptr @calloc.own(ptr %state, i64 %number, i64 %each) {{
entry:
  %size = mul i64 %number, %each
  %large = call i1 @wanted(ptr %state, i64 %size)
  br i1 %large, label %make, label %usual
make:
  %block = call ptr @make(ptr %state, i64 %size, i1 true)
  %none = icmp eq ptr %block, null
  br i1 %none, label %usual, label %done
done:
  ret ptr %block
usual:
  %context = call ptr @own(ptr %state, i64 {_OWN})
  %function = call ptr @own(ptr %state, i64 {_OWN + 2})
  %given = call ptr %function(ptr %context, i64 %number, i64 %each)
  ret ptr %given
}}

define internal ptr @realloc.own(ptr %state, ptr %block, i64 %size) {{
entry:
  %large = call i1 @is.large(ptr %state, ptr %block)
  br i1 %large, label %move, label %usual
move:
  %new = call ptr @malloc.own(ptr %state, i64 %size)
  %none = icmp eq ptr %new, null
  br i1 %none, label %done, label %copy
copy:
  %header = getelementptr i8, ptr %block, i64 -{_HEADER}
  %total = load i64, ptr %header
  %before = sub i64 %total, {_HEADER}
  %bytes = call i64 @llvm.umin.i64(i64 %before, i64 %size)
  %copied = call ptr @memcpy(ptr %new, ptr %block, i64 %bytes)
  call void @keep(ptr %state, ptr %block)
  br label %done
done:
  ret ptr %new
usual:
  %context = call ptr @own(ptr %state, i64 {_OWN})
  %function = call ptr @own(ptr %state, i64 {_OWN + 3})
  %given = call ptr %function(ptr %context, ptr %block, i64 %size)
  ret ptr %given
}}

define internal void @free.own(ptr %state, ptr %block, i64 %size) {{
entry:
  %large = call i1 @is.large(ptr %state, ptr %block)
  br i1 %large, label %keep, label %usual
keep:
  call void @keep(ptr %state, ptr %block)
  ret void
usual:
  %context = call ptr @own(ptr %state, i64 {_OWN})
  %function = call ptr @own(ptr %state, i64 {_OWN + 4})
  call void %function(ptr %context, ptr %block, i64 %size)
  ret void
}}

define void @kernel(ptr %out) {{
  store ptr @malloc.own, ptr %out
  %second = getelementptr ptr, ptr %out, i64 1
  store ptr @calloc.own, ptr %second
  %third = getelementptr ptr, ptr %out, i64 2
  store ptr @realloc.own, ptr %third
  %fourth = getelementptr ptr, ptr %out, i64 3
  store ptr @free.own, ptr %fourth
  ret void
}}
"""

_SET, _DEFAULT = 304, 306  # in the table of NumPy's functions for C
_PRIVATE = 0x4022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler``."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 4),
    )


class _Keeper:
    """The handler, and its state.  Arrays refer to them until the process ends."""

    def __init__(self, bound: int, machine: int) -> None:
        region, length = _region(_SPACIOUS * machine)
        point, make = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
        point.restype, point.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule = np._core.multiarray._ARRAY_API  # type: ignore[attr-defined]
        table = ctypes.cast(point(capsule, None), ctypes.POINTER(ctypes.c_void_p))
        self.default = ctypes.cast(table[_DEFAULT], ctypes.POINTER(ctypes.py_object))[0]
        self.set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET])
        own = _Handler.from_address(point(self.default, b"mem_handler"))

        self.state = (ctypes.c_int64 * _WORDS)()
        self.state[_BOUND:_FIRST] = [
            *(bound, own.context or 0, *own.functions),
            *(region, region + length, region, machine),
        ]
        functions = (ctypes.c_void_p * 4)()
        self.code = optimized_address(_STATE + _FREE + _MAKE + _HANDLER)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.code)(ctypes.addressof(functions))
        self.handler = _Handler(b"fdbr", 1, ctypes.addressof(self.state), functions)
        self.capsule = make(ctypes.addressof(self.handler), b"mem_handler", None)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def serve(self) -> None:
        """Serve the arrays of this thread, or task, if NumPy's own handler does at present."""
        before = self.set(self.capsule)
        if before is not self.default:
            self.set(before)


def _region(length: int) -> tuple[int, int]:
    """The begin of a number of addresses without memory, and the number.

    Raises
    ------
    OSError
        If the system does not give so many.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    ]
    found = library.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no addresses for large arrays")
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.madvise(found, length, mmap.MADV_DONTDUMP)
    if os.environ.get("NUMPY_MADVISE_HUGEPAGE") != "0":
        library.madvise(found, length, mmap.MADV_HUGEPAGE)
    return int(found), length


_here: ContextVar[bool] = ContextVar("keeps_large_blocks", default=False)


@functools.cache
def _keeper() -> _Keeper | None:
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 62:
        return None
    machine = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    chosen = os.environ.get("FDBR_KEPT_MEMORY", "")
    bound = int(chosen) << 20 if chosen.isdecimal() else machine // 4
    with contextlib.suppress(OSError, AttributeError, RuntimeError):  # each array is new memory
        return _Keeper(bound, machine) if bound else None
    return None


def keep() -> None:
    """Have memory of this thread's large arrays kept from now on.

    In the environment ``FDBR_KEPT_MEMORY`` is the number of megabytes up to which it is: else a
    quarter of the machine's memory, and with 0 none.  Elsewhere than on Linux, and where somebody
    else has given NumPy a handler of memory, this does nothing.
    """
    if _here.get():
        return
    _here.set(True)
    keeper = _keeper()
    if keeper is not None:
        keeper.serve()


def kept_bytes() -> int:
    """The number of bytes that are kept at present."""
    keeper: Any = _keeper() if _keeper.cache_info().currsize else None
    return 0 if keeper is None else int(keeper.state[_HELD])


def _renew() -> None:
    """Nobody changes the state in a process that was forked."""
    keeper: Any = _keeper() if _keeper.cache_info().currsize else None
    if keeper is not None:
        keeper.state[0] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

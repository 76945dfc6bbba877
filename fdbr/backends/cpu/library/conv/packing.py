"""LLVM code that packs windows in the cache, the first part of correlations.

A *tap* is a channel and a kernel position; its row has the element of every window of a block.
Distances are in elements unless stated otherwise.
"""

from collections.abc import Iterable, Iterator

from fdbr.backends.cpu.codegen.llvm_prelude import words
from fdbr.backends.cpu.codegen.vector_types import VectorTypes

__all__ = ["FIELDS", "KEPT", "UNIT", "begun", "heights", "packing"]

FIELDS = (
    *("counter", "units", "x", "weight", "out", "bias", "places", "scratch", "space"),
    *("examples", "channels", "leads", "wide", "rows", "columns", "length", "stride", "apart"),
    *("before", "channel", "example", "group", "outputs", "weight.step", "weight.group"),
    *("out.step", "out.example", "block", "blocks", "taps", "pitch", "shares", "share", "positive"),
)
"""The table's entries, in order.

The counter of units of work and their number; five addresses; the scratch memory, and its bytes for
each thread; the numbers of examples and channels, of kernel positions along all axes but the last,
of positions along the last, of rows of windows, and of windows in each; along the last axis its
length, the distance of windows, the distance of elements in one, and the padding before; the
distances of channels, examples and groups of ``x``; the number of outputs in a group; the distances
of their weights, and of those of groups, in bytes; the distances of rows and examples of the
result; the windows of a block, blocks of an example, taps of a block, and the distance of rows in
it; the number of shares of the outputs, and the outputs in each; and whether negative results are
replaced by zero.
"""

_ADDRESSES = ("x", "weight", "out", "bias", "places")
KEPT = "length stride apart before channel rows columns leads wide pitch".split()


def begun(unused: Iterable[str], before: str = "") -> str:
    """Return the beginning of a kernel, which takes units of work as long as there are any.

    Entries that are ``unused`` are not loaded; ``before`` is code before the first unit.
    """
    kept = {*KEPT} - {"rows", "columns", "leads", "wide", "pitch"}
    names = {*FIELDS} - {"counter", "places", *kept, *unused}
    return f"""
define void @kernel(ptr %table, i64 %start, i64 %stop, i64 %part) {{
entry:
{words(FIELDS, _ADDRESSES, sorted(names))}
  %mine = mul i64 %part, %space
  %own = add i64 %scratch, %mine
  %memory = inttoptr i64 %own to ptr
  %all.rows = mul i64 %channels, %leads
  %all = mul i64 %all.rows, %wide
  %windows = mul i64 %rows, %columns
{before}  br label %unit
unit:
  %u = atomicrmw add ptr %table, i64 1 monotonic, align 8
  %some = icmp slt i64 %u, %units
  br i1 %some, label %work, label %end
"""


UNIT = """
declare i64 @llvm.smin.i64(i64, i64)
"""


def _read(t: VectorTypes, stride: int) -> str:
    """Return code that reads elements from ``%at`` on, ``stride`` apart; a stride of 0 may be any.

    Elements outside of the row are zeros.  Vectors that lie within the row are read without masks.
    """
    if not stride:
        return "  br label %read\nread:\n" + _masked(t, stride)
    many = stride * t.lanes
    code = f"""  %room = sub i64 %length, {many}
  %after = icmp sge i64 %at, 0
  %fits = icmp sle i64 %at, %room
  %whole = and i1 %after, %fits
  br i1 %whole, label %plain, label %edge
plain:
  %plain.at = getelementptr {t.one}, ptr %here, i64 %at
"""
    if stride == 1:
        code += f"  %plain.value = load {t.many}, ptr %plain.at, align {t.size}\n"
    else:
        code += f"""  %plain.high.at = getelementptr {t.one}, ptr %plain.at, i64 {t.lanes}
  %plain.low = load {t.many}, ptr %plain.at, align {t.size}
  %plain.high = load {t.many}, ptr %plain.high.at, align {t.size}
  %plain.value = shufflevector {t.many} %plain.low, {t.many} %plain.high, {_even(t)}
"""
    return f"""{code}  br label %read
edge:
{_masked(t, stride)}  br label %read
read:
  %value = phi {t.many} [%plain.value, %plain], [%edge.value, %edge]
"""


def _even(t: VectorTypes) -> str:
    return f"<{t.lanes} x i32> <{', '.join(f'i32 {2 * k}' for k in range(t.lanes))}>"


def _masked(t: VectorTypes, stride: int) -> str:
    """Return code that reads a vector, with zeros for elements outside of the row."""

    def inside(name: str, lanes: str, start: str) -> str:
        return f"""{t.spread(f"{name}.start", start, "i64")}
  %{name}.index = add {t.whole} {lanes}, %{name}.start
  %{name}.mask = icmp ult {t.whole} %{name}.index, %long
"""

    def load(name: str, start: str) -> str:
        return f"""{inside(name, t.lane, start)}
  %{name}.at = getelementptr {t.one}, ptr %here, i64 {start}
  %{name} = call {t.many} @llvm.masked.load.{t.suffix}.p0(ptr %{name}.at, i32 {t.size},
    {t.flags} %{name}.mask, {t.many} zeroinitializer)
"""

    if stride == 1:
        return load("edge.value", "%at")
    if stride == 2:
        return f"""{load("low", "%at")}
  %at.high = add i64 %at, {t.lanes}
{load("high", "%at.high")}
  %edge.value = shufflevector {t.many} %low, {t.many} %high, {_even(t)}
"""
    return f"""{inside("value", "%stepped", "%at")}
  %ps = getelementptr {t.one}, ptr %here, {t.whole} %value.index
  %value = call {t.many} @llvm.masked.gather.{t.suffix}.v{t.lanes}p0(<{t.lanes} x ptr> %ps,
    i32 {t.size}, {t.flags} %value.mask, {t.many} zeroinitializer)
"""


def packing(t: VectorTypes, stride: int) -> str:
    """Return the function that packs the elements of windows, with zeros for the padding.

    Vectors may be written beyond the end of a row: the next row is written later, and there is
    space behind the last one.
    """
    return f"""
define internal void @pack(ptr %table, ptr %x, i64 %first, i64 %last, i64 %begin, i64 %count,
                           ptr %block) {{
entry:
{words(FIELDS, _ADDRESSES, [*KEPT, "places"])}
{t.spread("long", "%length", "i64")}{t.spread("steps", "%stride", "i64")}
  %stepped = mul {t.whole} {t.lane}, %steps
  %row.first = udiv i64 %begin, %columns
  %column.first = urem i64 %begin, %columns
  br label %tap
tap:
  %k = phi i64 [%first, %entry], [%k.next, %tap.end]
  %to = phi ptr [%block, %entry], [%to.next, %tap.end]
  %along = urem i64 %k, %wide
  %k.rest = udiv i64 %k, %wide
  %lead = urem i64 %k.rest, %leads
  %c = udiv i64 %k.rest, %leads
  %away = mul i64 %along, %apart
  %shift = sub i64 %away, %before
  %c.far = mul i64 %c, %channel
  %of.c = getelementptr {t.one}, ptr %x, i64 %c.far
  %lead.far = mul i64 %lead, %rows
  %of.lead = getelementptr i64, ptr %places, i64 %lead.far
  br label %row
row:
  %r = phi i64 [%row.first, %tap], [%r.next, %row.end]
  %column = phi i64 [%column.first, %tap], [0, %row.end]
  %done = phi i64 [0, %tap], [%done.next, %row.end]
  %in.row = sub i64 %columns, %column
  %left = sub i64 %count, %done
  %many = call i64 @llvm.smin.i64(i64 %in.row, i64 %left)
  %place.at = getelementptr i64, ptr %of.lead, i64 %r
  %place = load i64, ptr %place.at
  %there = getelementptr {t.one}, ptr %to, i64 %done
  %outside = icmp slt i64 %place, 0
  br i1 %outside, label %nothing, label %something
nothing:
  %z = phi i64 [0, %row], [%z.next, %nothing]
  %z.at = getelementptr {t.one}, ptr %there, i64 %z
  store {t.many} zeroinitializer, ptr %z.at, align {t.size}
  %z.next = add i64 %z, {t.lanes}
  %z.more = icmp slt i64 %z.next, %many
  br i1 %z.more, label %nothing, label %row.end
something:
  %here = getelementptr {t.one}, ptr %of.c, i64 %place
  %column.far = mul i64 %column, %stride
  %start = add i64 %column.far, %shift
  br label %vector
vector:
  %v = phi i64 [0, %something], [%v.next, %read]
  %v.far = mul i64 %v, %stride
  %at = add i64 %start, %v.far
{_read(t, stride)}
  %v.at = getelementptr {t.one}, ptr %there, i64 %v
  store {t.many} %value, ptr %v.at, align {t.size}
  %v.next = add i64 %v, {t.lanes}
  %v.more = icmp slt i64 %v.next, %many
  br i1 %v.more, label %vector, label %row.end
row.end:
  %done.next = add i64 %done, %many
  %r.next = add i64 %r, 1
  %row.more = icmp slt i64 %done.next, %count
  br i1 %row.more, label %row, label %tap.end
tap.end:
  %end.at = getelementptr {t.one}, ptr %to, i64 %count
  store {t.many} zeroinitializer, ptr %end.at, align {t.size}
  %to.next = getelementptr {t.one}, ptr %to, i64 %pitch
  %k.next = add i64 %k, 1
  %tap.more = icmp slt i64 %k.next, %last
  br i1 %tap.more, label %tap, label %end
end:
  ret void
}}
"""


def heights(high: int, rest: int) -> Iterator[int]:
    """Yield the heights of tiles that a kernel needs."""
    yield high
    if rest and rest != high:
        yield rest

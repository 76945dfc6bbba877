"""LLVM code of correlations: products of weights and packed windows.

Tiles of the product stay in registers while all taps of a block are added.
"""

import functools

from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.codegen.vector_types import VectorTypes
from fdbr.backends.cpu.library.conv.packing import UNIT, begun, heights, packing

__all__ = ["correlating", "turning"]


def _tile(t: VectorTypes, high: int, wide: int, step: int) -> str:
    """Return the code of a tile: ``high`` outputs and ``wide`` vectors of windows.

    It starts from the bias at the first taps, and from ``out`` at later ones.  The weights are
    packed by `turning`, ``step`` for each tap.
    """
    name, tiles = f"@tile{high}", [(o, i) for o in range(high) for i in range(wide)]
    text = f"""
define internal void {name}(ptr %weight, i64 %taps, ptr %block, i64 %pitch, ptr %out, i64 %out.step,
                            i64 %left, ptr %bias, i1 %first, i1 %positive) {{
entry:
{t.spread("lefts", "%left", "i64")}"""
    for i in range(wide):
        lane = f"<{', '.join(f'i64 {k + i * t.lanes}' for k in range(t.lanes))}>"
        text += f"  %mask{i} = icmp slt {t.whole} {lane}, %lefts\n"
    for o in range(high):
        text += f"  %down{o} = mul i64 %out.step, {o}\n"
        text += f"  %out{o} = getelementptr {t.one}, ptr %out, i64 %down{o}\n"
    text += f"  %whole = icmp sge i64 %left, {wide * t.lanes}\n"
    text += "  br i1 %first, label %begin, label %again\nbegin:\n"
    for o in range(high):
        text += f"  %b{o}.at = getelementptr {t.one}, ptr %bias, i64 {o}\n"
        text += f"  %b{o}.one = load {t.one}, ptr %b{o}.at\n" + t.spread(f"b{o}", f"%b{o}.one")
    text += "  br label %before\nagain:\n"
    for o, i in tiles:
        text += f"  %g{o}.{i}.at = getelementptr {t.one}, ptr %out{o}, i64 {i * t.lanes}\n"
    text += "  br i1 %whole, label %again.whole, label %again.part\nagain.whole:\n"
    for o, i in tiles:
        text += f"  %h{o}.{i} = load {t.many}, ptr %g{o}.{i}.at, align {t.size}\n"
    text += "  br label %before\nagain.part:\n"
    for o, i in tiles:
        text += (
            f"  %g{o}.{i} = call {t.many} @llvm.masked.load.{t.suffix}.p0(ptr %g{o}.{i}.at, "
            f"i32 {t.size}, {t.flags} %mask{i}, {t.many} zeroinitializer)\n"
        )
    text += "  br label %before\nbefore:\n"
    for o, i in tiles:
        text += f"  %s{o}.{i} = phi {t.many} [%b{o}, %begin], [%h{o}.{i}, %again.whole], "
        text += f"[%g{o}.{i}, %again.part]\n"
    text += "  br label %loop\nloop:\n  %k = phi i64 [0, %before], [%k.next, %loop]\n"
    text += "  %row = phi ptr [%block, %before], [%row.next, %loop]\n"
    for o, i in tiles:
        text += f"  %t{o}.{i} = phi {t.many} [%s{o}.{i}, %before], [%u{o}.{i}, %loop]\n"
    text += "  %w = phi ptr [%weight, %before], [%w.next, %loop]\n"
    for i in range(wide):
        text += f"  %x{i}.at = getelementptr {t.one}, ptr %row, i64 {i * t.lanes}\n"
        text += f"  %x{i} = load {t.many}, ptr %x{i}.at, align {t.size}\n"
    for o in range(high):
        text += f"  %w{o}.at = getelementptr {t.one}, ptr %w, i64 {o}\n"
        text += f"  %w{o}.one = load {t.one}, ptr %w{o}.at\n" + t.spread(f"w{o}", f"%w{o}.one")
        for i in range(wide):
            text += (
                f"  %u{o}.{i} = call {t.many} @llvm.fma.{t.suffix}({t.many} %w{o}, "
                f"{t.many} %x{i}, {t.many} %t{o}.{i})\n"
            )
    text += f"""  %row.next = getelementptr {t.one}, ptr %row, i64 %pitch
  %w.next = getelementptr {t.one}, ptr %w, i64 {step}
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %taps
  br i1 %more, label %loop, label %after
after:
"""
    for o, i in tiles:
        text += f"  %low{o}.{i} = fcmp olt {t.many} %u{o}.{i}, zeroinitializer\n"
        text += f"  %cut{o}.{i} = select {t.flags} %low{o}.{i}, {t.many} zeroinitializer, "
        text += f"{t.many} %u{o}.{i}\n"
        text += f"  %f{o}.{i} = select i1 %positive, {t.many} %cut{o}.{i}, {t.many} %u{o}.{i}\n"
        text += f"  %o{o}.{i} = getelementptr {t.one}, ptr %out{o}, i64 {i * t.lanes}\n"
    text += "  br i1 %whole, label %all, label %part\nall:\n"
    for o, i in tiles:
        text += f"  store {t.many} %f{o}.{i}, ptr %o{o}.{i}, align {t.size}\n"
    text += "  ret void\npart:\n"
    for o, i in tiles:
        text += (
            f"  call void @llvm.masked.store.{t.suffix}.p0({t.many} %f{o}.{i}, ptr %o{o}.{i}, "
            f"i32 {t.size}, {t.flags} %mask{i})\n"
        )
    return text + "  ret void\n}\n"


@functools.cache
def turning(size: int, high: int) -> str:
    """Return the kernel that packs weights: those of each tile of outputs, tap by tap.

    Its table has the addresses of the weights, of the offsets of taps, and of the target; the
    distances of outputs and groups in bytes; the outputs of a group, its tiles, and its taps.
    """
    one = "float" if size == 4 else "double"
    addresses = ("weight", "offsets", "out")
    table = (*addresses, "step", "group", "outputs", "tiles", "taps")
    text = f"{HEAD}{words(table, addresses)}\n"
    for o in range(high):
        text += f"  %far{o} = mul i64 %step, {o}\n"
    text += f"""  br label %tile
tile:
  %u = phi i64 [%start, %entry], [%u.next, %tile.end]
  %g = udiv i64 %u, %tiles
  %t = urem i64 %u, %tiles
  %o = mul i64 %t, {high}
  %left = sub i64 %outputs, %o
  %w.g = mul i64 %g, %group
  %w.o = mul i64 %o, %step
  %w.far = add i64 %w.g, %w.o
  %w.tile = getelementptr i8, ptr %weight, i64 %w.far
  %row = mul i64 %u, %taps
  %to.far = mul i64 %row, {high}
  %to.tile = getelementptr {one}, ptr %out, i64 %to.far
  %whole = icmp sge i64 %left, {high}
  br label %tap
tap:
  %k = phi i64 [0, %tile], [%k.next, %tap.end]
  %to = phi ptr [%to.tile, %tile], [%to.next, %tap.end]
  %offset.at = getelementptr i64, ptr %offsets, i64 %k
  %offset = load i64, ptr %offset.at
  %w = getelementptr i8, ptr %w.tile, i64 %offset
  br i1 %whole, label %all, label %some
all:
"""
    for o in range(high):
        text += f"  %p{o} = getelementptr i8, ptr %w, i64 %far{o}\n"
        text += f"  %v{o} = load {one}, ptr %p{o}\n"
    for o in range(high):
        text += f"  %q{o} = getelementptr {one}, ptr %to, i64 {o}\n"
        text += f"  store {one} %v{o}, ptr %q{o}\n"
    return (
        text
        + f"""  br label %tap.end
some:
  %i = phi i64 [0, %tap], [%i.next, %some]
  %i.far = mul i64 %i, %step
  %i.from = getelementptr i8, ptr %w, i64 %i.far
  %i.value = load {one}, ptr %i.from
  %i.to = getelementptr {one}, ptr %to, i64 %i
  store {one} %i.value, ptr %i.to
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %left
  br i1 %i.more, label %some, label %tap.end
tap.end:
  %to.next = getelementptr {one}, ptr %to, i64 {high}
  %k.next = add i64 %k, 1
  %tap.more = icmp slt i64 %k.next, %taps
  br i1 %tap.more, label %tap, label %tile.end
tile.end:
  %u.next = add i64 %u, 1
  %more = icmp slt i64 %u.next, %stop
  br i1 %more, label %tile, label %end
end:
  ret void
}}
"""
    )


def correlating(size: int, lanes: int, high: int, rest: int, wide: int, stride: int) -> str:
    """Return the kernel of a correlation.

    Parameters
    ----------
    size, lanes
        The bytes of a number, and the numbers of a vector.
    high, rest, wide
        The outputs of a tile, those of the last tile in each share of the outputs if they are
        fewer (otherwise 0), and the vectors of a tile.
    stride
        The distance of windows along the last axis if that is 1 or 2, and else 0.
    """
    t = VectorTypes(size, lanes)
    text = UNIT + t.declared() + packing(t, stride)
    text += "".join(_tile(t, h, wide, high) for h in heights(high, rest))

    def tile(h: int) -> str:
        return (
            f"  call void @tile{h}(ptr %w.here, i64 %taps.here, ptr %row, i64 %pitch, ptr %to, "
            "i64 %out.step, i64 %left, ptr %bias.here, i1 %is.first, i1 %cut)\n"
        )

    return (
        text
        + begun({"weight.step", "weight.group"}, "  %cuts = icmp ne i64 %positive, 0\n")
        + f"""work:
  %number = urem i64 %u, %shares
  %u1 = udiv i64 %u, %shares
  %which = urem i64 %u1, %blocks
  %u2 = udiv i64 %u1, %blocks
  %n = urem i64 %u2, %examples
  %g = udiv i64 %u2, %examples
  %first.output = mul i64 %number, %share
  %end.output = add i64 %first.output, %share
  %last.output = call i64 @llvm.smin.i64(i64 %end.output, i64 %outputs)
  %begin = mul i64 %which, %block
  %windows.left = sub i64 %windows, %begin
  %count = call i64 @llvm.smin.i64(i64 %block, i64 %windows.left)
  %x.g = mul i64 %g, %group
  %x.n = mul i64 %n, %example
  %x.far = add i64 %x.g, %x.n
  %x.here = getelementptr {t.one}, ptr %x, i64 %x.far
  %w.tile = add i64 %outputs, {high - 1}
  %w.tiles = udiv i64 %w.tile, {high}
  %w.first = mul i64 %g, %w.tiles
  %out.n = mul i64 %n, %out.example
  %out.1 = add i64 %out.n, %begin
  %g.outputs = mul i64 %g, %outputs
  br label %depth
depth:
  %k = phi i64 [0, %work], [%k.next, %depth.end]
  %k.most = add i64 %k, %taps
  %k.end = call i64 @llvm.smin.i64(i64 %k.most, i64 %all)
  call void @pack(ptr %table, ptr %x.here, i64 %k, i64 %k.end, i64 %begin, i64 %count, ptr %memory)
  %taps.here = sub i64 %k.end, %k
  %is.first = icmp eq i64 %k, 0
  %is.last = icmp eq i64 %k.end, %all
  %cut = and i1 %cuts, %is.last
  br label %output
output:
  %o = phi i64 [%first.output, %depth], [%o.next, %output.end]
  %o.next = add i64 %o, {high}
  %fits = icmp sle i64 %o.next, %last.output
  %w.o = udiv i64 %o, {high}
  %w.which = add i64 %w.first, %w.o
  %w.rows = mul i64 %w.which, %all
  %w.row = add i64 %w.rows, %k
  %w.far = mul i64 %w.row, {high}
  %w.here = getelementptr {t.one}, ptr %weight, i64 %w.far
  %whole = add i64 %g.outputs, %o
  %bias.here = getelementptr {t.one}, ptr %bias, i64 %whole
  %out.o = mul i64 %whole, %out.step
  %out.2 = add i64 %out.1, %out.o
  %out.here = getelementptr {t.one}, ptr %out, i64 %out.2
  br label %tile
tile:
  %j = phi i64 [0, %output], [%j.next, %tile.end]
  %row = getelementptr {t.one}, ptr %memory, i64 %j
  %to = getelementptr {t.one}, ptr %out.here, i64 %j
  %left = sub i64 %count, %j
  br i1 %fits, label %large, label %small
large:
{tile(high)}  br label %tile.end
small:
{tile(rest or high)}  br label %tile.end
tile.end:
  %j.next = add i64 %j, {wide * lanes}
  %tile.more = icmp slt i64 %j.next, %count
  br i1 %tile.more, label %tile, label %output.end
output.end:
  %output.more = icmp slt i64 %o.next, %last.output
  br i1 %output.more, label %output, label %depth.end
depth.end:
  %k.next = add i64 %k, %taps
  %depth.more = icmp slt i64 %k.next, %all
  br i1 %depth.more, label %depth, label %unit
end:
  ret void
}}
"""
    )

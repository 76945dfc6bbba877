"""LLVM code of the weight gradients of correlations: inner products over windows.

Tiles of the result stay in registers while all windows of a block are added.
"""

from fdbr.backends.cpu.codegen.vector_types import VectorTypes
from fdbr.backends.cpu.library.conv.packing import UNIT, begun, heights, packing

__all__ = ["inner"]


def _dots(t: VectorTypes, high: int, wide: int) -> str:
    """Return code that adds inner products of ``high`` rows of ``y`` and ``wide`` of the block."""
    tiles = [(o, i) for o in range(high) for i in range(wide)]
    text = f"""
define internal void @dots{high}.{wide}(ptr %y, i64 %step, ptr %block, i64 %pitch, i64 %count,
                                        ptr %out, i64 %out.step, i1 %first) {{
entry:
"""
    for o in range(high):
        text += f"  %far{o} = mul i64 %step, {o}\n"
        text += f"  %y{o} = getelementptr {t.one}, ptr %y, i64 %far{o}\n"
    for i in range(wide):
        text += f"  %up{i} = mul i64 %pitch, {i}\n"
        text += f"  %x{i} = getelementptr {t.one}, ptr %block, i64 %up{i}\n"
    text += f"""
  %even = sdiv i64 %count, {t.lanes}
  %whole = mul i64 %even, {t.lanes}
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %loop, label %rest
"""
    for label, after in (("loop", "entry"), ("rest", "")):
        text += f"{label}:\n"
        if after:
            text += "  %j = phi i64 [0, %entry], [%j.next, %loop]\n"
            for o, i in tiles:
                text += f"  %t{o}.{i} = phi {t.many} [zeroinitializer, %entry], "
                text += f"[%u{o}.{i}, %loop]\n"
            at, old, new = "%j", "t", "u"
        else:
            text += "  %tail = phi i64 [0, %entry], [%whole, %loop]\n"
            for o, i in tiles:
                text += f"  %r{o}.{i} = phi {t.many} [zeroinitializer, %entry], "
                text += f"[%u{o}.{i}, %loop]\n"
            text += "  %over = sub i64 %count, %tail\n" + t.spread("overs", "%over", "i64")
            text += f"  %mask = icmp slt {t.whole} {t.lane}, %overs\n"
            at, old, new = "%tail", "r", "e"
        for i in range(wide):
            text += f"  %x{i}.{new} = getelementptr {t.one}, ptr %x{i}, i64 {at}\n"
            text += f"  %v{i}.{new} = load {t.many}, ptr %x{i}.{new}, align {t.size}\n"
        for o in range(high):
            text += f"  %y{o}.{new} = getelementptr {t.one}, ptr %y{o}, i64 {at}\n"
            if after:
                text += f"  %w{o}.{new} = load {t.many}, ptr %y{o}.{new}, align {t.size}\n"
            else:
                text += (
                    f"  %w{o}.{new} = call {t.many} @llvm.masked.load.{t.suffix}.p0("
                    f"ptr %y{o}.{new}, i32 {t.size}, {t.flags} %mask, {t.many} zeroinitializer)\n"
                )
            for i in range(wide):
                text += (
                    f"  %{new}{o}.{i} = call {t.many} @llvm.fma.{t.suffix}({t.many} %w{o}.{new}, "
                    f"{t.many} %v{i}.{new}, {t.many} %{old}{o}.{i})\n"
                )
        if after:
            text += f"""  %j.next = add i64 %j, {t.lanes}
  %more = icmp slt i64 %j.next, %whole
  br i1 %more, label %loop, label %rest
"""
    for o, i in tiles:
        zero = f"{t.one} -0.0"
        text += f"  %sum{o}.{i} = call reassoc {t.one} @llvm.vector.reduce.fadd.{t.suffix}({zero}, "
        text += f"{t.many} %e{o}.{i})\n"
        text += f"  %d{o}.{i} = mul i64 %out.step, {o}\n"
        text += f"  %p{o}.{i} = getelementptr {t.one}, ptr %out, i64 %d{o}.{i}\n"
        text += f"  %q{o}.{i} = getelementptr {t.one}, ptr %p{o}.{i}, i64 {i}\n"
    text += "  br i1 %first, label %store, label %add\nadd:\n"
    for o, i in tiles:
        text += f"  %old{o}.{i} = load {t.one}, ptr %q{o}.{i}\n"
        text += f"  %new{o}.{i} = fadd {t.one} %old{o}.{i}, %sum{o}.{i}\n"
        text += f"  store {t.one} %new{o}.{i}, ptr %q{o}.{i}\n"
    text += "  ret void\nstore:\n"
    for o, i in tiles:
        text += f"  store {t.one} %sum{o}.{i}, ptr %q{o}.{i}\n"
    return text + "  ret void\n}\n"


def inner(size: int, lanes: int, high: int, rest: int, wide: int, stride: int) -> str:
    """Return the kernel of the inner products of channels of ``y`` with taps of ``x``.

    In its table ``weight`` is ``y``; the distances of its channels are ``weight.step``, of groups
    ``weight.group``, and of examples ``out.example``.  Outputs are ``out.step`` apart in ``out``.
    ``shares`` are those of the taps of a group, with ``taps`` in each.
    """
    t = VectorTypes(size, lanes)
    text = UNIT + t.declared() + packing(t, stride)
    for h in heights(high, rest):
        text += _dots(t, h, wide) + (_dots(t, h, 1) if wide > 1 else "")

    def dots(h: int, w: int) -> str:
        return (
            f"  call void @dots{h}.{w}(ptr %y.here, i64 %weight.step, ptr %row, i64 %pitch, "
            "i64 %count, ptr %to, i64 %out.step, i1 %is.first)\n"
        )

    return (
        text
        + begun({"bias", "positive", "share"})
        + f"""work:
  %number = urem i64 %u, %shares
  %g = udiv i64 %u, %shares
  %k = mul i64 %number, %taps
  %k.most = add i64 %k, %taps
  %k.end = call i64 @llvm.smin.i64(i64 %k.most, i64 %all)
  %taps.here = sub i64 %k.end, %k
  %x.g = mul i64 %g, %group
  %y.g = mul i64 %g, %weight.group
  %g.outputs = mul i64 %g, %outputs
  br label %example.begin
example.begin:
  %n = phi i64 [0, %work], [%n.next, %example.end]
  %x.n = mul i64 %n, %example
  %x.far = add i64 %x.g, %x.n
  %x.here = getelementptr {t.one}, ptr %x, i64 %x.far
  %y.n = mul i64 %n, %out.example
  %y.far = add i64 %y.g, %y.n
  br label %windows.begin
windows.begin:
  %begin = phi i64 [0, %example.begin], [%begin.next, %windows.end]
  %windows.left = sub i64 %windows, %begin
  %count = call i64 @llvm.smin.i64(i64 %block, i64 %windows.left)
  call void @pack(ptr %table, ptr %x.here, i64 %k, i64 %k.end, i64 %begin, i64 %count, ptr %memory)
  %sum.first = or i64 %n, %begin
  %is.first = icmp eq i64 %sum.first, 0
  br label %output
output:
  %o = phi i64 [0, %windows.begin], [%o.next, %output.end]
  %o.next = add i64 %o, {high}
  %fits = icmp sle i64 %o.next, %outputs
  %y.o = mul i64 %o, %weight.step
  %y.1 = add i64 %y.far, %y.o
  %y.2 = add i64 %y.1, %begin
  %y.here = getelementptr {t.one}, ptr %weight, i64 %y.2
  %whole = add i64 %g.outputs, %o
  %out.o = mul i64 %whole, %out.step
  %out.1 = add i64 %out.o, %k
  %out.here = getelementptr {t.one}, ptr %out, i64 %out.1
  br label %tile
tile:
  %i = phi i64 [0, %output], [%i.next, %tile.end]
  %row.far = mul i64 %i, %pitch
  %row = getelementptr {t.one}, ptr %memory, i64 %row.far
  %to = getelementptr {t.one}, ptr %out.here, i64 %i
  %i.most = add i64 %i, {wide}
  %broad = icmp sle i64 %i.most, %taps.here
  %i.step = select i1 %broad, i64 {wide}, i64 1
  %i.next = add i64 %i, %i.step
  br i1 %fits, label %large, label %small
large:
  br i1 %broad, label %large.broad, label %large.narrow
large.broad:
{dots(high, wide)}  br label %tile.end
large.narrow:
{dots(high, 1)}  br label %tile.end
small:
  br i1 %broad, label %small.broad, label %small.narrow
small.broad:
{dots(rest or high, wide)}  br label %tile.end
small.narrow:
{dots(rest or high, 1)}  br label %tile.end
tile.end:
  %tile.more = icmp slt i64 %i.next, %taps.here
  br i1 %tile.more, label %tile, label %output.end
output.end:
  %output.more = icmp slt i64 %o.next, %outputs
  br i1 %output.more, label %output, label %windows.end
windows.end:
  %begin.next = add i64 %begin, %block
  %windows.more = icmp slt i64 %begin.next, %windows
  br i1 %windows.more, label %windows.begin, label %example.end
example.end:
  %n.next = add i64 %n, 1
  %example.more = icmp slt i64 %n.next, %examples
  br i1 %example.more, label %example.begin, label %unit
end:
  ret void
}}
"""
    )

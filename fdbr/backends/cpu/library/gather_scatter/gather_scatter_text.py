"""LLVM code of kernels that gather elements at indices, and scatter or add them there.

They process the moved elements line by line: a *line* is contiguous in the index and in the result.
Indices are checked for a *piece* of a line at a time; pieces whose indices are all in range take a
loop without checks.
"""

import functools
from collections.abc import Callable

from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words

__all__ = ["TABLE", "gathering", "scattering"]

TABLE = "x index out count line lines base step stack bytes apart which total wrong".split()
"""The words of a kernel's table."""

Move = Callable[[str], str]
"""Returns code that moves element ``%v`` with the valid index ``%j``, up to the label ``after``.

All these names have a suffix, which is its argument."""

_COUNT = {
    "i64": "%count.word = add i64 %count, 0",
    "i32": "%count.word = trunc i64 %count to i32",
}
_LANES = 16  # elements that are added at once
_PIECE = 1 << 9  # indices that are checked before they are used

_BEGIN = HEAD + words(TABLE, ("x", "index", "out"))
_COPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)\n"
_ANY = "declare i1 @llvm.vector.reduce.or.v8i1(<8 x i1>)\n"
_END = """
end:
  br i1 %worse, label %tell, label %done
tell:
  store i64 1, ptr %wrong.at
  br label %done
done:
  ret void
}
"""

# A line is contiguous in the index and in the result: element `t` of line (r, k).
_LINE = """
  %r = udiv i64 %row, %lines
  %r.first = mul i64 %r, %lines
  %k = sub i64 %row, %r.first
  %r.base = mul i64 %r, %base
  %k.inside = mul i64 %k, %line
  %i.first = add i64 %r.base, %k.inside
  %shift = sub i64 %i.first, %row.first
  %offset = mul i64 %r, %stack"""


def _word(word: str, s: str) -> str:
    """Return code that loads the index of element ``%v``."""
    wide = "bitcast i64" if word == "i64" else "sext i32"
    return f"""
  %i{s} = add i64 %v{s}, %shift
  %i.at{s} = getelementptr {word}, ptr %index, i64 %i{s}
  %raw{s} = load {word}, ptr %i.at{s}
  %word{s} = {wide} %raw{s} to i64"""


def _place(kind: str, whole: bool, along: bool, s: str) -> str:
    """Return code for the address of row ``%j``, or of an element in it."""
    if along:
        where = f"""
  %far{s} = mul i64 %j{s}, %step
  %t{s} = sub i64 %v{s}, %row.first
  %place{s} = add i64 %far{s}, %t{s}"""
    else:
        where = (
            f"\n  %place{s} = {'add' if whole else 'mul'} i64 %j{s}, {'0' if whole else '%step'}"
        )
    return f"{where}\n  %there{s} = getelementptr {kind}, ptr %rows, i64 %place{s}"


def _through_line(word: str, move: Move, quick: bool) -> str:
    """Return loops over the elements of a line, from ``%v.first`` to ``%v.end``.

    With ``quick``, pieces whose indices are all in range take a loop without checks.
    """
    begin = f"""
pieces:
  %piece = phi i64 [%v.first, %begin], [%piece.end, %piece.over]
  %b.piece = phi i1 [%worse, %begin], [%b.over, %piece.over]
  %more.pieces = icmp slt i64 %piece, %v.end
  br i1 %more.pieces, label %piece.begin, label %line.done
piece.begin:
  %piece.full = add i64 %piece, {_PIECE}
  %piece.short = icmp slt i64 %piece.full, %v.end
  %piece.end = select i1 %piece.short, i64 %piece.full, i64 %v.end"""
    slow = _slow(word, move)
    if not quick:
        return f"""{begin}
  br label %careful
careful:
  br label %slow{slow}
  br label %piece.over
piece.over:
  %b.over = phi i1 [%b, %piece.done]
  br label %pieces
line.done:"""
    return f"""{begin}{_look(word)}
  br i1 %some.out, label %careful, label %fast
careful:
  br label %slow{_fast(word, move)}
  br label %piece.over{slow}
  br label %piece.over
piece.over:
  %b.over = phi i1 [%b.piece, %piece.fast], [%b, %piece.done]
  br label %pieces
line.done:"""


def _slow(word: str, move: Move) -> str:
    """Return a loop over a piece that checks each index before using it."""
    return f"""
slow:
  %v = phi i64 [%piece, %careful], [%v.next, %after]
  %b = phi i1 [%b.piece, %careful], [%b.next, %after]
  %unfinished = icmp slt i64 %v, %piece.end
  br i1 %unfinished, label %each, label %piece.done
each:{_word(word, "")}
  %negative = icmp slt i64 %word, 0
  %turned = add i64 %word, %count
  %j = select i1 %negative, i64 %turned, i64 %word
  %ok = icmp ult i64 %j, %count
  %bad = xor i1 %ok, true
  %b.next = or i1 %b, %bad
  %inside = sub i64 %j, %low
  %mine = icmp ult i64 %inside, %share
  br i1 %mine, label %move, label %after
move:{move("")}
after:
  %v.next = add i64 %v, 1
  br label %slow
piece.done:"""


def _look(word: str) -> str:
    """Return a loop that finds out whether an index of a piece is out of range."""
    some = f"<8 x {word}>"
    return f"""
  %last = sub i64 %piece.end, 8
  %long = icmp sle i64 %piece, %last
  %all.mine = icmp eq i64 %share, %count
  %try = and i1 %long, %all.mine
  br i1 %try, label %look, label %careful
look:
  %w = phi i64 [%piece, %piece.begin], [%w.next, %look]
  %out.of = phi <8 x i1> [zeroinitializer, %piece.begin], [%out.of.next, %look]
  %w.early = icmp slt i64 %w, %last
  %w.here = select i1 %w.early, i64 %w, i64 %last
  %w.i = add i64 %w.here, %shift
  %w.at = getelementptr {word}, ptr %index, i64 %w.i
  %w.raw = load {some}, ptr %w.at, align {8 if word == "i64" else 4}
  %w.least = insertelement {some} poison, {word} %count.word, i64 0
  %w.most = shufflevector {some} %w.least, {some} poison, <8 x i32> zeroinitializer
  %w.bad = icmp uge {some} %w.raw, %w.most
  %out.of.next = or <8 x i1> %out.of, %w.bad
  %w.next = add i64 %w, 8
  %w.more = icmp slt i64 %w.next, %piece.end
  br i1 %w.more, label %look, label %looked
looked:
  %some.out = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %out.of.next)"""


def _fast(word: str, move: Move) -> str:
    """Return a loop over a piece with valid indices, four at a time."""
    four = "".join(
        f"""
  %v.{n} = add i64 %q, {n}{_word(word, f".{n}")}
  %j.{n} = add i64 %word.{n}, 0{move(f".{n}")}
after.{n}:"""
        for n in range(4)
    )
    return f"""
fast:
  %q = phi i64 [%piece, %looked], [%q.next, %after.3]
  %q.next = add i64 %q, 4
  %q.fits = icmp sle i64 %q.next, %piece.end
  br i1 %q.fits, label %four, label %single
four:{four}
  br label %fast
single:
  %v.s = phi i64 [%q, %fast], [%v.s.next, %after.s]
  %s.left = icmp slt i64 %v.s, %piece.end
  br i1 %s.left, label %move.s, label %piece.fast
move.s:{_word(word, ".s")}
  %j.s = add i64 %word.s, 0{move(".s")}
after.s:
  %v.s.next = add i64 %v.s, 1
  br label %single
piece.fast:"""


@functools.cache  # because generating the text takes long
def gathering(word: str, size: int, along: bool) -> str:
    """Return a kernel that reads elements of ``size`` bytes; of any number of bytes for 0."""
    memory = f"i{8 * size}" if size else "i8"

    def move(s: str) -> str:
        place = _place(memory, bool(size), along, s)
        if size:
            return f"""{place}
  %value{s} = load {memory}, ptr %there{s}, align 1
  %to{s} = getelementptr {memory}, ptr %out, i64 %v{s}
  store {memory} %value{s}, ptr %to{s}, align 1
  br label %after{s}"""
        return f"""{place}
  %v.bytes{s} = mul i64 %v{s}, %bytes
  %to{s} = getelementptr i8, ptr %out, i64 %v.bytes{s}
  call void @llvm.memcpy.p0.p0.i64(ptr %to{s}, ptr %there{s}, i64 %bytes, i1 false)
  br label %after{s}"""

    return f"""{_COPY}{_ANY}{_BEGIN}
  {_COUNT[word]}
  br label %next.line
next.line:
  %u = phi i64 [%start, %entry], [%v.end, %line.done]
  %worse = phi i1 [false, %entry], [%b.piece, %line.done]
  %more = icmp slt i64 %u, %stop
  br i1 %more, label %begin, label %end
begin:
  %row = udiv i64 %u, %line
  %row.first = mul i64 %row, %line
  %row.end = add i64 %row.first, %line
  %early = icmp slt i64 %row.end, %stop
  %v.first = add i64 %u, 0
  %v.end = select i1 %early, i64 %row.end, i64 %stop{_LINE}
  %rows = getelementptr {memory}, ptr %x, i64 %offset
  %low = add i64 0, 0
  %share = add i64 %count, 0
  br label %pieces{_through_line(word, move, bool(size))}
  br label %next.line{_END}"""


def _adding(memory: str, plus: str) -> str:
    """Return a loop that adds the elements of a row to those of another."""
    many = f"<{_LANES} x {memory}>"
    return f"""
  %whole = sub i64 %bytes, {_LANES - 1}
  br label %vectors
vectors:
  %c = phi i64 [0, %move], [%c.next, %vector]
  %fits = icmp slt i64 %c, %whole
  br i1 %fits, label %vector, label %rest
vector:
  %a = getelementptr {memory}, ptr %from, i64 %c
  %z = getelementptr {memory}, ptr %there, i64 %c
  %a.many = load {many}, ptr %a, align 1
  %z.many = load {many}, ptr %z, align 1
  %sum.many = {plus}{many} %z.many, %a.many
  store {many} %sum.many, ptr %z, align 1
  %c.next = add i64 %c, {_LANES}
  br label %vectors
rest:
  %d = phi i64 [%c, %vectors], [%d.next, %lone]
  %left = icmp slt i64 %d, %bytes
  br i1 %left, label %lone, label %after
lone:
  %a1 = getelementptr {memory}, ptr %from, i64 %d
  %z1 = getelementptr {memory}, ptr %there, i64 %d
  %a.one = load {memory}, ptr %a1, align 1
  %z.one = load {memory}, ptr %z1, align 1
  %sum.one = {plus}{memory} %z.one, %a.one
  store {memory} %sum.one, ptr %z1, align 1
  %d.next = add i64 %d, 1
  br label %rest"""


@functools.cache
def scattering(word: str, size: int, along: bool, added: str) -> str:
    """Return a kernel that writes or adds elements of ``size`` bytes, or rows."""
    memory = added or (f"i{8 * size}" if size else "i8")
    plus = f"{'fadd' if added in ('float', 'double') else 'add'} "

    def move(s: str) -> str:
        text = f"""{_place(memory, bool(size), along, s)}
  %value.at{s} = mul i64 %v{s}, %apart
  %from{s} = getelementptr {memory}, ptr %x, i64 %value.at{s}"""
        if size:
            text += f"\n  %value{s} = load {memory}, ptr %from{s}, align 1"
            if added:
                text += f"""
  %old{s} = load {memory}, ptr %there{s}, align 1
  %new{s} = {plus}{memory} %old{s}, %value{s}"""
            return f"""{text}
  store {memory} %{"new" if added else "value"}{s}, ptr %there{s}, align 1
  br label %after{s}"""
        if not added:
            return f"""{text}
  call void @llvm.memcpy.p0.p0.i64(ptr %there{s}, ptr %from{s}, i64 %bytes, i1 false)
  br label %after{s}"""
        return text + _adding(memory, plus)

    return f"""{_COPY}{_ANY}{_BEGIN}
  {_COUNT[word]}
  %by.stack = icmp eq i64 %which, 0
  %by.line = icmp eq i64 %which, 1
  %by.place = icmp eq i64 %which, 2
  %r0 = select i1 %by.stack, i64 %start, i64 0
  %r1 = select i1 %by.stack, i64 %stop, i64 %total
  %t0 = select i1 %by.line, i64 %start, i64 0
  %t1 = select i1 %by.line, i64 %stop, i64 %line
  %low = select i1 %by.place, i64 %start, i64 0
  %high = select i1 %by.place, i64 %stop, i64 %count
  %share = sub i64 %high, %low
  %row0 = mul i64 %r0, %lines
  %row1 = mul i64 %r1, %lines
  br label %next.line
next.line:
  %row = phi i64 [%row0, %entry], [%row.next, %line.done]
  %worse = phi i1 [false, %entry], [%b.piece, %line.done]
  %more = icmp slt i64 %row, %row1
  br i1 %more, label %begin, label %end
begin:
  %row.first = mul i64 %row, %line
  %v.first = add i64 %row.first, %t0
  %v.end = add i64 %row.first, %t1{_LINE}
  %rows = getelementptr {memory}, ptr %out, i64 %offset
  br label %pieces{_through_line(word, move, bool(size))}
  %row.next = add i64 %row, 1
  br label %next.line{_END}"""

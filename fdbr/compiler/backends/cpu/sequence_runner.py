"""Kernels one after the other in one call: the machine code that calls them, and its tables.

The tables of a sequence are an array of words (64 bits each), one for each piece of memory that a
program works in, so that runs on several threads have their own:

- the *head*: the record to begin with, how many records and patches there are, whether others may
  have Python meanwhile, where patches and records are; where a log goes on, and where its memory
  ends; and how many jumps there may be before Python has a turn, in which it hears signals;
- *patches*, for each place in an argument: the argument's number, where the address of its
  elements is to be written, and how many bytes behind the first element it is;
- *places*, which to a kernel look like array objects: the address of elements, and of strides;
- *tables* of places, one for each kernel;
- *records*: what is done.  A kernel is the address of the word with the address of its code, its
  table, its rows, and the place of a byte that is set to 0 before and must be 0 afterwards (or 0).
  A check is 0, the place of a value, its size in bytes, and the bits that it must have.
  `AIM` sets a place to where another one is, so many bytes further on; `ADVANCE` moves it on by
  some bytes.  `BEGIN` writes a number of turns to a word, and `REPEAT` counts them down there: it
  goes back to a record as long as there are turns left.
- Control flow: `WHEN` goes to a record if a byte is what it says.  `MOVE` copies bytes from a place
  to another one.  `ROOM` sees whether so many bytes can be added to the log, `PUSH` adds those of a
  place and `NOTE` a number; `POP` takes bytes off its end to a place, and `BACK` a number, which
  says by a table to which record it goes.  `STOP` stops.

The runner stops at a record that it cannot do: a kernel that is not compiled yet or that refuses,
a check that fails, a log without room, a number that its table does not know.  It gives the
record's number then (and `REFUSED`), and goes on where it is told.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.backends.cpu.language import HEAD
from fdbr.compiler.backends.cpu.launching import method
from fdbr.kernels.machine import address_of

__all__ = [
    *("ADVANCE", "AIM", "BACK", "BEGIN", "FIRST", "JUMPS", "LOG", "MOVE", "NOTE", "POP", "PUSH"),
    *("REFUSED", "REPEAT", "ROOM", "STOP", "WHEN"),
    *("Tables", "Template", "Writer", "runner"),
]

REFUSED = 1 << 40
AIM, ADVANCE, BEGIN, REPEAT = 1, 2, 3, 4
WHEN, MOVE, ROOM, PUSH, NOTE, POP, BACK, STOP = 5, 6, 7, 8, 9, 10, 11, 12
FIRST = 0  # the word of the head that says which record comes first
LOG, JUMPS = 6, 8  # those of the log, which are two, and of the jumps
_WORDS = 9  # of the head
_PLACES = (AIM, MOVE)  # whose third word is a place, too
_DATA, _STRIDES = HEAD // 8, HEAD // 8 + 3

_RUNNER = f"""
@_Py_NoneStruct = external global i8
declare void @Py_IncRef(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @go(ptr %words, i64 %first) {{
entry:
  %count.at = getelementptr i64, ptr %words, i64 1
  %count = load i64, ptr %count.at
  %records.at = getelementptr i64, ptr %words, i64 5
  %records = load ptr, ptr %records.at
  %log.at = getelementptr i64, ptr %words, i64 {LOG}
  %log.end.at = getelementptr i64, ptr %words, i64 {LOG + 1}
  %jumps.at = getelementptr i64, ptr %words, i64 {JUMPS}
  br label %next
next:
  %k = phi i64 [%first, %entry], [%k1, %step], [%c, %back], [%goal, %popped]
  %any = icmp slt i64 %k, %count
  br i1 %any, label %record, label %end
record:
  %offset = mul i64 %k, 4
  %a.at = getelementptr i64, ptr %records, i64 %offset
  %b.at = getelementptr i64, ptr %a.at, i64 1
  %c.at = getelementptr i64, ptr %a.at, i64 2
  %d.at = getelementptr i64, ptr %a.at, i64 3
  %a = load ptr, ptr %a.at
  %b = load ptr, ptr %b.at
  %c = load i64, ptr %c.at
  %d = load i64, ptr %d.at
  %operation = ptrtoint ptr %a to i64
  switch i64 %operation, label %kernel [i64 0, label %check
                                        i64 {AIM}, label %aim
                                        i64 {ADVANCE}, label %advance
                                        i64 {BEGIN}, label %begin
                                        i64 {REPEAT}, label %repeat
                                        i64 {WHEN}, label %when
                                        i64 {MOVE}, label %move
                                        i64 {ROOM}, label %room
                                        i64 {PUSH}, label %push
                                        i64 {NOTE}, label %note
                                        i64 {POP}, label %pop
                                        i64 {BACK}, label %number
                                        i64 {STOP}, label %stop]
when:
  %asked.at = getelementptr i64, ptr %b, i64 {_DATA}
  %asked = load ptr, ptr %asked.at
  %said = load i8, ptr %asked
  %said.long = zext i8 %said to i64
  %holds = icmp eq i64 %said.long, %d
  br i1 %holds, label %jump, label %step
jump:
  %jumps = load i64, ptr %jumps.at
  %jumps.left = sub i64 %jumps, 1
  %tired = icmp slt i64 %jumps.left, 0
  br i1 %tired, label %stop, label %jumping
jumping:
  store i64 %jumps.left, ptr %jumps.at
  br label %back
move:
  %moved.to.at = inttoptr i64 %c to ptr
  %target.at = getelementptr i64, ptr %moved.to.at, i64 {_DATA}
  %source.at = getelementptr i64, ptr %b, i64 {_DATA}
  %target = load ptr, ptr %target.at
  %source = load ptr, ptr %source.at
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %d, i1 false)
  br label %step
room:
  %log.now = load i64, ptr %log.at
  %log.then = add i64 %log.now, %c
  %log.end = load i64, ptr %log.end.at
  %full = icmp sgt i64 %log.then, %log.end
  br i1 %full, label %stop, label %step
push:
  %pushed.at = getelementptr i64, ptr %b, i64 {_DATA}
  %pushed = load ptr, ptr %pushed.at
  %top = load ptr, ptr %log.at
  call void @llvm.memcpy.p0.p0.i64(ptr %top, ptr %pushed, i64 %c, i1 false)
  %above = getelementptr i8, ptr %top, i64 %c
  store ptr %above, ptr %log.at
  br label %step
note:
  %noted = load ptr, ptr %log.at
  store i64 %c, ptr %noted
  %behind.note = getelementptr i64, ptr %noted, i64 1
  store ptr %behind.note, ptr %log.at
  br label %step
pop:
  %pop.end = load ptr, ptr %log.at
  %pop.size = sub i64 0, %c
  %pop.start = getelementptr i8, ptr %pop.end, i64 %pop.size
  %pop.at = getelementptr i64, ptr %b, i64 {_DATA}
  %pop.to = load ptr, ptr %pop.at
  call void @llvm.memcpy.p0.p0.i64(ptr %pop.to, ptr %pop.start, i64 %c, i1 false)
  store ptr %pop.start, ptr %log.at
  br label %step
number:
  %number.end = load ptr, ptr %log.at
  %number.at = getelementptr i64, ptr %number.end, i64 -1
  %number.log = load i64, ptr %number.at
  %goal.at = getelementptr i64, ptr %b, i64 %number.log
  %goal = load i64, ptr %goal.at
  %lost = icmp slt i64 %goal, 0
  br i1 %lost, label %stop, label %popping
popping:
  %pops = load i64, ptr %jumps.at
  %pops.left = sub i64 %pops, 1
  %pops.tired = icmp slt i64 %pops.left, 0
  br i1 %pops.tired, label %stop, label %popped
popped:
  store i64 %pops.left, ptr %jumps.at
  store ptr %number.at, ptr %log.at
  br label %next
aim:
  %base = inttoptr i64 %c to ptr
  %base.at = getelementptr i64, ptr %base, i64 {_DATA}
  %base.data = load i64, ptr %base.at
  %aimed = add i64 %base.data, %d
  %aimed.at = getelementptr i64, ptr %b, i64 {_DATA}
  store i64 %aimed, ptr %aimed.at
  br label %step
advance:
  %moved.at = getelementptr i64, ptr %b, i64 {_DATA}
  %moved.from = load i64, ptr %moved.at
  %moved = add i64 %moved.from, %c
  store i64 %moved, ptr %moved.at
  br label %step
begin:
  store i64 %c, ptr %b
  br label %step
repeat:
  %turns = load i64, ptr %b
  %left = sub i64 %turns, 1
  store i64 %left, ptr %b
  %again = icmp sgt i64 %left, 0
  br i1 %again, label %back, label %step
back:
  br label %next
kernel:
  %code = load atomic ptr, ptr %a monotonic, align 8
  %missing = icmp eq ptr %code, null
  br i1 %missing, label %stop, label %there
there:
  %plain = icmp eq i64 %d, 0
  br i1 %plain, label %run, label %careful
run:
  call void %code(ptr %b, i64 0, i64 %c, i64 0)
  br label %step
careful:
  %place = inttoptr i64 %d to ptr
  %byte.at = getelementptr i64, ptr %place, i64 {_DATA}
  %byte = load ptr, ptr %byte.at
  store i8 0, ptr %byte
  call void %code(ptr %b, i64 0, i64 %c, i64 0)
  %refused = load i8, ptr %byte
  %fine = icmp eq i8 %refused, 0
  br i1 %fine, label %step, label %refused.stop
check:
  %value.at = getelementptr i64, ptr %b, i64 {_DATA}
  %value = load ptr, ptr %value.at
  switch i64 %c, label %long [i64 1, label %byte.wide  i64 4, label %half]
byte.wide:
  %v1 = load i8, ptr %value
  %v1.long = zext i8 %v1 to i64
  br label %compare
half:
  %v4 = load i32, ptr %value
  %v4.long = zext i32 %v4 to i64
  br label %compare
long:
  %v8 = load i64, ptr %value
  br label %compare
compare:
  %bits = phi i64 [%v1.long, %byte.wide], [%v4.long, %half], [%v8, %long]
  %same = icmp eq i64 %bits, %d
  br i1 %same, label %step, label %stop
step:
  %k1 = add i64 %k, 1
  br label %next
stop:
  ret i64 %k
refused.stop:
  %marked = or i64 %k, {REFUSED}
  ret i64 %marked
end:
  ret i64 -1
}}

define ptr @kernel(ptr %own, ptr %arguments, i64 %given) {{
entry:
  %object = load ptr, ptr %arguments
  %words.at = getelementptr i64, ptr %object, i64 {_DATA}
  %words = load ptr, ptr %words.at
  %first = load i64, ptr %words
  store i64 0, ptr %words
  %patches.at = getelementptr i64, ptr %words, i64 2
  %patches = load i64, ptr %patches.at
  %free.at = getelementptr i64, ptr %words, i64 3
  %free = load i64, ptr %free.at
  %list.at = getelementptr i64, ptr %words, i64 4
  %list = load ptr, ptr %list.at
  br label %next
next:
  %p = phi i64 [0, %entry], [%p1, %patch]
  %more = icmp slt i64 %p, %patches
  br i1 %more, label %patch, label %go
patch:
  %offset = mul i64 %p, 3
  %number.at = getelementptr i64, ptr %list, i64 %offset
  %number = load i64, ptr %number.at
  %place.at = getelementptr i64, ptr %number.at, i64 1
  %place = load ptr, ptr %place.at
  %behind.at = getelementptr i64, ptr %number.at, i64 2
  %behind = load i64, ptr %behind.at
  %argument.at = getelementptr ptr, ptr %arguments, i64 %number
  %argument = load ptr, ptr %argument.at
  %data.at = getelementptr i64, ptr %argument, i64 {_DATA}
  %data = load i64, ptr %data.at
  %there = add i64 %data, %behind
  %to = getelementptr i64, ptr %place, i64 {_DATA}
  store i64 %there, ptr %to
  %p1 = add i64 %p, 1
  br label %next
go:
  %lets.go = icmp ne i64 %free, 0
  br i1 %lets.go, label %apart, label %held
apart:
  %thread = call ptr @PyEval_SaveThread()
  %apart.end = call i64 @go(ptr %words, i64 %first)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
held:
  %held.end = call i64 @go(ptr %words, i64 %first)
  br label %done
done:
  %end = phi i64 [%apart.end, %apart], [%held.end, %held]
  %whole = icmp slt i64 %end, 0
  br i1 %whole, label %none, label %stopped
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
stopped:
  %result = call ptr @PyLong_FromLongLong(i64 %end)
  ret ptr %result
}}
"""


@functools.cache
def runner() -> Callable[..., int | None]:
    """A function of a sequence's tables and of its arguments, which runs it.

    It gives `None`, or the number of the record at which it has stopped.
    """
    found: Callable[..., int | None] = method(address_of(_RUNNER))
    return found


@attrs.define(eq=False)
class Template:
    """The tables of a sequence, but for where they and the memory are.

    Attributes
    ----------
    words
        With offsets in the place of addresses.
    here
        The words that are offsets from the tables' own beginning.
    inside
        Those that are offsets in the program's memory.
    """

    words: Any
    here: Any
    inside: Any

    def at(self, memory: int) -> "Tables":
        """The tables for memory at an address."""
        words = self.words.copy()
        words[self.here] += words.ctypes.data
        words[self.inside] += memory
        return Tables(words)


class Tables:
    """The tables for one piece of memory: ``words``."""

    __slots__ = ("words",)

    def __init__(self, words: Any) -> None:
        self.words = words

    def array(self, place: int, shape: tuple[int, ...], strides: Any, dtype: Any) -> Any:
        """The elements at a place, as an array."""
        address = int(self.words[place + _DATA])
        ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
        before, behind = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        buffer = (ctypes.c_char * (behind - before + dtype.itemsize)).from_address(address + before)
        return np.ndarray(shape, dtype, buffer, -before, strides)


class Writer:
    """A template in the making."""

    def __init__(self) -> None:
        self.words = [0] * _WORDS
        self.here: list[int] = [4, 5]
        self.inside: list[int] = []

    def place(self, start: int, strides: tuple[int, ...], inside: bool) -> int:
        """A place, of which the address is known, or an offset in the memory."""
        at = len(self.words)
        self.words += [0] * (_STRIDES + 1)
        self.words[at + _DATA] = start
        self.words[at + _STRIDES] = 8 * len(self.words)
        self.here.append(at + _STRIDES)
        self.words += strides
        if inside:
            self.inside.append(at + _DATA)
        return at

    def word(self) -> int:
        """A word that is written to."""
        self.words.append(0)
        return len(self.words) - 1

    def numbers(self, numbers: Sequence[int]) -> int:
        """A table of numbers."""
        self.words += numbers
        return len(self.words) - len(numbers)

    def table(self, places: list[int]) -> int:
        """A table of places."""
        at = len(self.words)
        self.here += range(at, at + len(places))
        self.words += [8 * place for place in places]
        return at

    def finish(
        self,
        patches: list[tuple[int, int, int]],
        records: list[tuple[int, int, int, int]],
        free: bool,
    ) -> Template:
        """The template with its patches and records, which name places and tables by offsets."""
        self.words[1:6] = len(records), len(patches), int(free), 8 * len(self.words), 0
        for number, place, behind in patches:
            self.here.append(len(self.words) + 1)
            self.words += [number, 8 * place, behind]
        self.words[5] = 8 * len(self.words)
        for code, table, count, last in records:
            at = len(self.words)
            self.here.append(at + 1)
            if code in _PLACES:
                self.here.append(at + 2)
                count *= 8
            elif code > STOP and last:
                self.here.append(at + 3)
                last *= 8
            self.words += [code, 8 * table, count, last]
        indices = [np.array(found, np.intp) for found in (self.here, self.inside)]
        return Template(np.array(self.words, np.int64), *indices)

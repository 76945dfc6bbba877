"""The runner of sequences: machine code that calls one kernel after the other as tables say.

It stops at a kernel that refuses and at a check that fails, and returns the number of the record,
with `REFUSED` set if a kernel refused.
"""

import functools
from collections.abc import Callable

from fdbr.backends.cpu.exec.sequence_tables import ADVANCE, AIM, BEGIN, DATA, REFUSED, REPEAT
from fdbr.backends.cpu.runtime.launching import method
from fdbr.backends.cpu.runtime.machine import address_of

__all__ = ["runner"]

_RUNNER = f"""
@_Py_NoneStruct = external global i8
declare void @Py_IncRef(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

define internal i64 @go(ptr %words) {{
entry:
  %count = load i64, ptr %words
  %records.at = getelementptr i64, ptr %words, i64 4
  %records = load ptr, ptr %records.at
  br label %next
next:
  %k = phi i64 [0, %entry], [%k1, %step], [%c, %back]
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
                                        i64 {REPEAT}, label %repeat]
aim:
  %base = inttoptr i64 %c to ptr
  %base.at = getelementptr i64, ptr %base, i64 {DATA}
  %base.data = load i64, ptr %base.at
  %aimed = add i64 %base.data, %d
  %aimed.at = getelementptr i64, ptr %b, i64 {DATA}
  store i64 %aimed, ptr %aimed.at
  br label %step
advance:
  %moved.at = getelementptr i64, ptr %b, i64 {DATA}
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
  %plain = icmp eq i64 %d, 0
  br i1 %plain, label %run, label %careful
run:
  call void %a(ptr %b, i64 0, i64 %c, i64 0)
  br label %step
careful:
  %place = inttoptr i64 %d to ptr
  %byte.at = getelementptr i64, ptr %place, i64 {DATA}
  %byte = load ptr, ptr %byte.at
  store i8 0, ptr %byte
  call void %a(ptr %b, i64 0, i64 %c, i64 0)
  %refused = load i8, ptr %byte
  %fine = icmp eq i8 %refused, 0
  br i1 %fine, label %step, label %refused.stop
check:
  %value.at = getelementptr i64, ptr %b, i64 {DATA}
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
  %words.at = getelementptr i64, ptr %object, i64 {DATA}
  %words = load ptr, ptr %words.at
  %patches.at = getelementptr i64, ptr %words, i64 1
  %patches = load i64, ptr %patches.at
  %free.at = getelementptr i64, ptr %words, i64 2
  %free = load i64, ptr %free.at
  %list.at = getelementptr i64, ptr %words, i64 3
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
  %data.at = getelementptr i64, ptr %argument, i64 {DATA}
  %data = load i64, ptr %data.at
  %there = add i64 %data, %behind
  %to = getelementptr i64, ptr %place, i64 {DATA}
  store i64 %there, ptr %to
  %p1 = add i64 %p, 1
  br label %next
go:
  %lets.go = icmp ne i64 %free, 0
  br i1 %lets.go, label %apart, label %held
apart:
  %thread = call ptr @PyEval_SaveThread()
  %apart.end = call i64 @go(ptr %words)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
held:
  %held.end = call i64 @go(ptr %words)
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
    """Return a function of a sequence's tables and arguments that runs it.

    Its result is `None`, or the number of the record at which it has stopped.
    """
    found: Callable[..., int | None] = method(address_of(_RUNNER))
    return found

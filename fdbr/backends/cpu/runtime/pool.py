"""The threads of kernels.

They sleep while there is no work, so that they leave the cores to other threads, above all those of
the BLAS.  A job is divided into parts, and every awake thread, the caller included, takes the next
one, so nobody waits for a thread that wakes late.  If the pool is busy, because another thread or
a signal handler has launched a job, the caller runs all parts itself.

A job is identified by a word of 64 bits (its number, the number of parts, and the next part) that
changes only by compare-and-swap.  A late thread finds another number there, and takes no part; a
part that it does take belongs to a job whose caller waits, so the job's fields stay valid.
"""

import contextlib
import ctypes
import functools
import os
import threading
from typing import Any

import numpy as np

from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.core.util.threads import available

__all__ = ["data_address", "launch", "part_count", "thread_count"]

# A pool consists of the word of the job, the number of unfinished parts, the job's kernel, table,
# rows and grain, whether the caller sleeps, and two semaphores of the C library: for threads, and
# for the caller.  A semaphore takes at most four words.
_WORDS = 16
_PATIENCE = 2  # launches without help, or one for each thread, after which threads are moved

_PART = """
declare i32 @sem_wait(ptr)
declare i32 @sem_post(ptr)

define internal void @fill(ptr %pool, i64 %kernel, i64 %table, i64 %rows, i64 %grain) {
  %kernel.at = getelementptr i64, ptr %pool, i64 2
  store i64 %kernel, ptr %kernel.at
  %table.at = getelementptr i64, ptr %pool, i64 3
  store i64 %table, ptr %table.at
  %rows.at = getelementptr i64, ptr %pool, i64 4
  store i64 %rows, ptr %rows.at
  %grain.at = getelementptr i64, ptr %pool, i64 5
  store i64 %grain, ptr %grain.at
  ret void
}

define internal void @part(ptr %pool, i64 %part, i64 %parts) {
  %kernel.at = getelementptr i64, ptr %pool, i64 2
  %kernel = load ptr, ptr %kernel.at
  %table.at = getelementptr i64, ptr %pool, i64 3
  %table = load ptr, ptr %table.at
  %rows.at = getelementptr i64, ptr %pool, i64 4
  %rows = load i64, ptr %rows.at
  %grain.at = getelementptr i64, ptr %pool, i64 5
  %grain = load i64, ptr %grain.at
  %more = add i64 %rows, %grain
  %most = sub i64 %more, 1
  %units = udiv i64 %most, %grain
  %a0 = mul i64 %units, %part
  %a1 = udiv i64 %a0, %parts
  %start = mul i64 %a1, %grain
  %next = add i64 %part, 1
  %b0 = mul i64 %units, %next
  %b1 = udiv i64 %b0, %parts
  %b2 = mul i64 %b1, %grain
  %less = icmp slt i64 %b2, %rows
  %stop = select i1 %less, i64 %b2, i64 %rows
  %any = icmp slt i64 %start, %stop
  br i1 %any, label %run, label %done
run:
  call void %kernel(ptr %table, i64 %start, i64 %stop, i64 %part)
  br label %done
done:
  ret void
}

; Runs parts as long as there are any, and returns how many.
define internal i64 @work(ptr %pool) {
entry:
  %unfinished = getelementptr i64, ptr %pool, i64 1
  %sleeps = getelementptr i64, ptr %pool, i64 6
  %done.semaphore = getelementptr i64, ptr %pool, i64 11
  br label %again
again:
  %count = phi i64 [0, %entry], [%count, %take], [%more, %run], [%more, %finish], [%more, %rouse]
  %word = load atomic i64, ptr %pool acquire, align 8
  %part = and i64 %word, 65535
  %high = lshr i64 %word, 16
  %parts = and i64 %high, 65535
  %any = icmp ult i64 %part, %parts
  br i1 %any, label %take, label %done
take:
  %taken = add i64 %word, 1
  %pair = cmpxchg ptr %pool, i64 %word, i64 %taken acq_rel acquire, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %again
run:
  call void @part(ptr %pool, i64 %part, i64 %parts)
  %more = add i64 %count, 1
  %before = atomicrmw sub ptr %unfinished, i64 1 seq_cst, align 8
  %last = icmp eq i64 %before, 1
  br i1 %last, label %finish, label %again
finish:
  %slept = atomicrmw xchg ptr %sleeps, i64 0 seq_cst, align 8
  %asleep = icmp ne i64 %slept, 0
  br i1 %asleep, label %rouse, label %again
rouse:
  %roused = call i32 @sem_post(ptr %done.semaphore)
  br label %again
done:
  ret i64 %count
}
"""

# Waits for jobs forever.  One job often follows another at once, and waking a thread takes longer
# than many a job; so it polls some times before it sleeps, and yields the core to other threads
# in between.
_SERVE = """
declare i32 @sem_trywait(ptr)
declare i32 @sched_yield()

define void @kernel(ptr %pool) {
entry:
  %semaphore = getelementptr i64, ptr %pool, i64 7
  br label %again
again:
  %n = phi i64 [0, %entry], [0, %run], [%n1, %wait]
  %missed = call i32 @sem_trywait(ptr %semaphore)
  %none = icmp ne i32 %missed, 0
  br i1 %none, label %idle, label %run
idle:
  %n1 = add i64 %n, 1
  %soon = icmp slt i64 %n1, 100
  br i1 %soon, label %wait, label %sleep
wait:
  %yielded = call i32 @sched_yield()
  br label %again
sleep:
  %woken = call i32 @sem_wait(ptr %semaphore)
  br label %run
run:
  %done = call i64 @work(ptr %pool)
  br label %again
}
"""

# Publishes a job, wakes threads, helps, waits until all parts are finished, and returns how many of
# them it ran itself.  It sleeps soon: a thread that has taken a part may be waiting for a core on
# which the threads of another library spin.
_LAUNCH = """
define i64 @kernel(ptr %pool, i64 %kernel, i64 %table, i64 %rows, i64 %grain, i64 %parts,
                   i64 %helpers) {
entry:
  call void @fill(ptr %pool, i64 %kernel, i64 %table, i64 %rows, i64 %grain)
  %unfinished = getelementptr i64, ptr %pool, i64 1
  %sleeps = getelementptr i64, ptr %pool, i64 6
  %semaphore = getelementptr i64, ptr %pool, i64 7
  %own = getelementptr i64, ptr %pool, i64 11
  store atomic i64 %parts, ptr %unfinished monotonic, align 8
  %word = load atomic i64, ptr %pool monotonic, align 8
  %number = lshr i64 %word, 32
  %next = add i64 %number, 1
  %high = shl i64 %next, 32
  %middle = shl i64 %parts, 16
  %new = or i64 %high, %middle
  store atomic i64 %new, ptr %pool release, align 8
  br label %wake
wake:
  %k = phi i64 [0, %entry], [%k1, %post]
  %more = icmp slt i64 %k, %helpers
  br i1 %more, label %post, label %help
post:
  %posted = call i32 @sem_post(ptr %semaphore)
  %k1 = add i64 %k, 1
  br label %wake
help:
  %own.parts = call i64 @work(ptr %pool)
  br label %wait
wait:
  %n = phi i64 [0, %help], [%n1, %longer]
  %left = load atomic i64, ptr %unfinished seq_cst, align 8
  %waiting = icmp ne i64 %left, 0
  br i1 %waiting, label %longer, label %done
longer:
  %n1 = add i64 %n, 1
  call void asm sideeffect "", "~{memory}"()
  %long = icmp sgt i64 %n1, 20000
  br i1 %long, label %sleep, label %wait
sleep:
  store atomic i64 1, ptr %sleeps seq_cst, align 8
  %now = load atomic i64, ptr %unfinished seq_cst, align 8
  %over = icmp eq i64 %now, 0
  br i1 %over, label %wake.up, label %rest
wake.up:
  %mine = atomicrmw xchg ptr %sleeps, i64 0 seq_cst, align 8
  %unseen = icmp ne i64 %mine, 0
  br i1 %unseen, label %done, label %rest
rest:
  %result = call i32 @sem_wait(ptr %own)
  %broken = icmp ne i32 %result, 0
  br i1 %broken, label %rest, label %done
done:
  ret i64 %own.parts
}
"""

# Runs all parts of a job, one after the other.
_ALONE = """
define void @kernel(i64 %kernel, i64 %table, i64 %rows, i64 %grain, i64 %parts) {
entry:
  %pool = alloca [16 x i64], align 8
  call void @fill(ptr %pool, i64 %kernel, i64 %table, i64 %rows, i64 %grain)
  br label %loop
loop:
  %part = phi i64 [0, %entry], [%next, %loop]
  call void @part(ptr %pool, i64 %part, i64 %parts)
  %next = add i64 %part, 1
  %more = icmp slt i64 %next, %parts
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def _function(source: str, arguments: int, result: Any = None) -> Any:
    kind = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * arguments)
    return kind(address_of(_PART + source))


class _Pool:
    """The memory that threads share, and the threads, which are started by the first launch."""

    def __init__(self) -> None:
        self.words = np.zeros(_WORDS, np.int64)
        self.address = self.words.ctypes.data
        self.lock = threading.Lock()
        self.helpers = -1
        self.threads: list[threading.Thread] = []
        self.alone = 0  # consecutive launches in which no thread helped
        self.core = -1  # the caller's core when threads were last moved
        self.cores: set[int] = set()  # the cores that threads may use

    def start(self) -> None:
        """Start threads on Linux, where a semaphore of the C library is initialised by zeros."""
        self.launch = _function(_LAUNCH, 7, ctypes.c_int64)
        serve = _function(_SERVE, 1) if hasattr(os, "sched_getaffinity") else None
        self.helpers = 0
        if serve is not None:
            self.cores = os.sched_getaffinity(0)
            try:
                for _ in range(thread_count() - 1):
                    thread = threading.Thread(
                        target=serve, args=(self.address,), name="fdbr-kernel", daemon=True
                    )
                    thread.start()
                    self.threads.append(thread)
                    self.helpers += 1
            except RuntimeError:  # `start` raises while the interpreter shuts down
                pass
            except BaseException:  # an interrupt, before which perhaps no thread has started
                self.helpers = self.helpers or -1
                raise

    def disperse(self) -> None:
        """Move threads to other cores than the caller's.

        Some schedulers leave a mostly sleeping thread on the core of the thread that wakes it,
        where it cannot run before that one is done.  The caller may also return from a sleep on
        another core, which a thread uses then.
        """
        with contextlib.suppress(OSError, AttributeError):
            core = _c_library().sched_getcpu()
            if core == self.core:
                return
            self.core = core
            others = self.cores - {core}
            for thread in self.threads if others else ():
                os.sched_setaffinity(thread.native_id or 0, others)


@functools.cache
def _c_library() -> Any:
    return ctypes.CDLL(None)


_pool = _Pool()


def _renew() -> None:
    global _pool
    _pool = _Pool()  # a forked child has none of its parent's threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@functools.cache
def thread_count() -> int:
    """Return the number of threads of kernels, including the caller's.

    It is ``FDBR_NUM_THREADS``, or else the result of `available`.
    """
    chosen = os.environ.get("FDBR_NUM_THREADS", "")
    return max(1, int(chosen)) if chosen.isdecimal() else available()


def part_count(most: int) -> int:
    """Return the number of parts to divide a job of at most ``most`` parts into.

    There are more parts than threads, so that a late thread delays the others little.
    """
    threads = thread_count()
    return max(1, min(8 * threads, most)) if threads > 1 else 1


_word: Any = ctypes.c_int64.from_address
_DATA = object.__basicsize__  # the offset of the address in NumPy's `PyArrayObject_fields`


def _read_address(array: Any) -> int:
    address: int = _word(id(array) + _DATA).value
    return address


def _asked_address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_sample = np.zeros(1)
data_address = (
    _read_address if _read_address(_sample) == _asked_address(_sample) else _asked_address
)
"""Return the address of an array's first element.

It is read from NumPy's array object, in a sixth of the time that the array interface takes; where
the object is laid out in another way, NumPy is asked.
"""


@functools.cache
def _alone() -> Any:
    return _function(_ALONE, 5)


_kernel_type = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_called = functools.lru_cache(4096)(_kernel_type)  # by address: to make a function takes longer


def launch(kernel: int, table: int, rows: int, grain: int, parts: int) -> None:
    """Run a kernel on several threads, each part on a share of the rows.

    Parameters
    ----------
    kernel
        The address of ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.
    table
        The address of its table.
    rows, grain
        The number of rows, and the number that the rows of each part but the last are a multiple
        of.
    parts
        The number of parts, at most 65,535.
    """
    if parts == 1:
        if rows:
            _called(int(kernel))(table, 0, rows, 0)
        return
    pool = _pool
    # CPython delivers no interrupt between acquiring a lock in `with` and the block.  If another
    # thread acquires it after the test, this one waits.
    if not pool.lock.locked():
        with pool.lock:
            if pool.helpers < 0:
                pool.start()
            if pool.helpers:
                helpers = min(pool.helpers, parts - 1)
                done = pool.launch(pool.address, kernel, table, rows, grain, parts, helpers)
                pool.alone = pool.alone + 1 if done == parts else 0
                if pool.alone >= _PATIENCE and pool.alone >= pool.helpers:
                    pool.alone = 0
                    pool.disperse()
                return
    _alone()(kernel, table, rows, grain, parts)

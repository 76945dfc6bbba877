"""Memory of large arrays stays for the next ones, and is no more than there ever was."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr.kernels import large_blocks

MEGABYTE = 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another system")


def said(script, **environment):
    """What a script prints in a process of its own."""
    command = [sys.executable, "-c", script]
    environment = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [int(word) for word in done.stdout.split()]


@st.composite
def histories(draw):
    """Which arrays are made, of how many quarters of a megabyte, resized and let go."""
    sizes = st.integers(1, 200)
    return draw(
        st.lists(st.tuples(st.sampled_from("eezrd"), sizes, st.integers(0, 9)), max_size=40)
    )


@given(histories())
def test_no_two_arrays_share_memory_and_zeros_are_zero(history):
    large_blocks.keep()
    arrays = {}
    for turn, (what, quarters, which) in enumerate(history):
        size = quarters * MEGABYTE // 4 + which
        if what == "d":
            arrays.pop(which, None)
        elif what == "r" and which in arrays:
            old, mark = arrays.pop(which)
            kept = min(len(old), size)
            old.resize(size, refcheck=False)
            assert (old[:kept:4096] == mark).all()
            assert not old[kept:].any()
            del old
        elif what in "ez":
            made = (np.zeros if what == "z" else np.empty)(size, np.uint8)
            assert what == "e" or not made[::1024].any()
            made[:] = turn + 1
            arrays[which] = made, turn + 1
            del made
    for array, mark in arrays.values():
        assert (array[::1024] == mark).all()
        assert array[-1] == mark


STEPS = """
import resource
import numpy as np
import fdbr

x = np.ones(10**7)
gradient = fdbr.grad(lambda x: (np.sin(x) * x).sum())
for _ in range(3):
    gradient(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    gradient(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@linux
def test_eager_gradients_of_large_arrays_take_no_new_pages():
    assert said(STEPS)[0] < 100


@linux
def test_nothing_is_kept_where_the_user_says_so():
    asked = "from fdbr.kernels.large_blocks import kept_bytes; print(kept_bytes())"
    assert said(STEPS + asked)[1] > 0
    assert said(STEPS + asked, FDBR_KEPT_MEMORY="0")[1] == 0
    assert 0 < said(STEPS + asked, FDBR_KEPT_MEMORY="90")[1] <= 90 * MEGABYTE


SIZES = """
import resource
import numpy as np
import fdbr

fdbr.ops.exp(np.ones(10**7))
for number in range(9, 60, 3):
    parts = [np.ones(number * 10**6 // 2, np.uint8) for _ in range(400 // number)]
    parts = [np.ones((200 - number) * 10**6, np.uint8)]
    del parts
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@linux
def test_arrays_of_ever_new_sizes_take_no_more_memory_than_without_it():
    assert said(SIZES)[0] < said(SIZES, FDBR_KEPT_MEMORY="0")[0] + 30


LATE = """
import atexit, threading
import numpy as np
import fdbr

kept = [np.ones(10**6)]
fdbr.ops.exp(np.ones(10**6))
kept += [np.ones(10**6), threading.local()]
kept[-1].array = np.ones(10**6)
atexit.register(lambda: kept.append(np.ones(10**6)))
class Late:
    def __del__(self):
        np.ones(10**6)
kept.append(Late())
print(1)
"""


def test_arrays_that_live_until_python_ends_do_no_harm():
    assert said(LATE) == [1]


@linux
def test_each_thread_that_runs_a_kernel_takes_part_and_takes_over_what_others_left():
    large_blocks.keep()
    names = []

    def work():
        large_blocks.keep()
        array = np.ones(10 * MEGABYTE, np.uint8)
        names.append(np._core.multiarray.get_handler_name(array))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 1
    assert names[0] == np._core.multiarray.get_handler_name(np.ones(10 * MEGABYTE, np.uint8))

"""Memory that a step frees stays for the next one."""

import os
import platform
import subprocess
import sys

import pytest

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")


def said(script, **environment):
    """The number that a script prints in a process of its own."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", "FDBR_"))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=own | environment
    )
    return int(done.stdout)


STEPS = """
import resource
import numpy as np
import fdbr

def step():
    return [np.ones(1 << 17) for _ in range(40)]  # of a megabyte each

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@glibc
def test_steps_of_40_megabytes_take_no_new_pages():
    assert said(STEPS) < 1000  # of the 10,000 of each step


GAPS = """
import resource
import numpy as np
import fdbr
from fdbr.backends.cpu.exec.memory.workspaces import Block

pairs = [(np.ones(1 << 19), np.ones(1 << 14)) for _ in range(60)]  # of 4 MB and 128 kB
kept = [small for _, small in pairs]
del pairs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
block = Block(200 << 20)
block.memory[:] = 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@glibc
def test_a_large_block_is_made_of_memory_that_was_freed_between_other_arrays():
    assert said(GAPS) < 60  # megabytes more than before, of 200


LARGE = """
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


@pytest.mark.slow
@glibc
def test_gradients_of_80_megabytes_take_no_new_pages_unless_the_user_says_so():
    assert said(LARGE) < 100
    assert said(LARGE, FDBR_KEPT_MEMORY="0") > 1000
    assert said(LARGE, MALLOC_TRIM_THRESHOLD_="131072") > 1000


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


@glibc
def test_arrays_of_ever_new_sizes_take_hardly_more_memory_than_without_it():
    assert said(SIZES) < said(SIZES, FDBR_KEPT_MEMORY="0") + 60


ENDED = """
import resource
import threading
import numpy as np
import fdbr

def work():
    parts = [np.ones(1 << 17) for _ in range(40)]  # of a megabyte each
    all_have_their_parts.wait()

def steps(count):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

all_have_their_parts = threading.Barrier(8)
steps(8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
parts = [np.ones(1 << 17) for _ in range(300)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@glibc
def test_what_ended_threads_have_freed_serves_the_others():
    assert said(ENDED) < 5000  # of the 77,000 pages of what the last array list takes
    assert said(ENDED, MALLOC_ARENA_MAX="8") > 20000

"""Memory that a step frees stays for the next one."""

import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_steps_of_40_megabytes_take_no_new_pages():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000  # of the 10,000 of each step


GAPS = """
import resource
import numpy as np
import fdbr
from fdbr.compiler.backends.cpu.workspaces import Block

pairs = [(np.ones(1 << 19), np.ones(1 << 14)) for _ in range(60)]  # of 4 MB and 128 kB
kept = [small for _, small in pairs]
del pairs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
block = Block(200 << 20)
block.memory[:] = 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_a_large_block_is_made_of_memory_that_was_freed_between_other_arrays():
    done = subprocess.run([sys.executable, "-c", GAPS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60  # megabytes more than before, of 200

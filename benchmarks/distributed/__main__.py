"""What each rank runs: ``mpiexec -n 2 python -m benchmarks.distributed PART``."""

import sys

from benchmarks.distributed.command import PARTS

if __name__ == "__main__":
    PARTS[sys.argv[1]](sys.argv[2:])

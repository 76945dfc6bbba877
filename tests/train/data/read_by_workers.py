"""Datasets that worker processes read, in a module that these can import; and a program."""

import os
import signal
import sys
import time

import attrs
import numpy as np

from fdbr import random, train


def noise(key, x):
    """An augmented example."""
    return x + random.uniform(key)


class OwnError(Exception):
    """An error that can be pickled, and not made again."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")


def fail(index):
    raise KeyError(f"the image of {index}")


def fail_strangely(index):
    raise OwnError(3, f"no {index}")


def die(index):
    os.kill(os.getpid(), signal.SIGKILL)


def leave(index):
    os._exit(5)


def hand_out_what_cannot_be_pickled(index):
    return lambda: index


def linger(index):
    time.sleep(60)


@attrs.frozen(eq=False)
class At:
    """Numbers, and something else at one of them."""

    index: int
    do: object
    count: int = 20

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.do(i) if i == self.index else np.full(2000, i)


if __name__ == "__main__":  # prints its workers, and waits in the middle of an epoch
    import multiprocessing

    batches = train.prefetch(train.Batches(At(4, linger), 2), workers=2, processes=True)
    for place, _ in enumerate(batches):
        if place == 1:
            pids = [str(process.pid) for process in multiprocessing.active_children()]
            print(*pids, flush=True)
    sys.exit("it should have waited")

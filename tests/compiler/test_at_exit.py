"""A jitted call while Python ends runs the function, if need be as it is, and makes no noise."""

import subprocess
import sys

import pytest

_PROGRAM = """
import atexit, builtins, sys, threading, time
import numpy as np, fdbr
x = np.linspace(0.0, 1.0, 5)
f = fdbr.jit(lambda x: np.sin(x) * 2 + np.cos(x))
g = fdbr.jit(fdbr.grad(lambda x: (fdbr.ops.tanh(x) * 2).sum()))

def work():
    assert abs(f(x)[0] - 1) < 1e-12
    assert abs(g(x)[0] - 2) < 1e-12
    f(x)
    print("done", flush=True)

class Last:
    def __del__(self, work=work):
        work()

{begin}
"""

BEGINNINGS = {
    "a global's end": "last = Last()",
    "a cycle": "last = Last(); last.itself = last",
    "a module": "sys.modules['last'] = Last()",
    "a builtin": "builtins.last = Last()",
    "atexit": "atexit.register(work)",
    "a late thread": "threading.Thread(target=lambda: (time.sleep(0.2), work())).start()",
}


def test_a_first_call_at_the_end_of_python_runs():
    _check("a global's end")


@pytest.mark.slow
@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_first_call_runs_however_late_it_comes(name):
    _check(name)


def _check(name):
    code = _PROGRAM.format(begin=BEGINNINGS[name])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)

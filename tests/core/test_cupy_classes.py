"""CuPy's own classes over host memory: which operand of an operator is asked, and which dtypes.

Nothing is computed, so no GPU is needed: where CuPy can be imported, its arrays are made over
NumPy's memory, and an operation on them ends where it reaches fdbr's, or CuPy's choice of a dtype.
"""

import ast
import functools
import inspect
import itertools
import traceback
from pathlib import Path

import numpy as np
import pytest
import shadow
from core.test_array_operands import FUNCTIONS, OPERATORS, UFUNCS

import fdbr
from fdbr.backends.cpu.codegen.math import functions
from fdbr.core import devices
from fdbr.core.array_modules import array_module, is_array, is_locked, keep, lock
from fdbr.core.tracer import Trace, Tracer

cupy = pytest.importorskip("cupy", reason="CuPy cannot be imported", exc_type=ImportError)

ERROR = cupy.cuda.runtime.CUDARuntimeError
try:
    cupy.cuda.runtime.getDeviceCount()
except ERROR:
    pass
else:
    pytest.skip("there is a GPU, on which everything is computed", allow_module_level=True)

DTYPES = "? b B h H i I q Q e f d F D".split()


def over_host(array):
    """A CuPy array over the memory of a NumPy array."""
    memory = cupy.cuda.memory.UnownedMemory(array.ctypes.data, max(array.nbytes, 1), array, 0)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.memory.MemoryPointer(memory, 0))


X = over_host(np.eye(3))


class Noting(Trace):
    """A transformation that notes what it is asked for, and computes nothing."""

    def __init__(self):
        super().__init__("noting", len)
        self.seen = []

    def process(self, primitive, args, params):
        self.seen.append((primitive.name, [type(arg) for arg in args]))
        return self.value(X)

    def value(self, array):
        tracer = Tracer()
        tracer._trace, tracer.value = self, array
        return tracer


@pytest.fixture(autouse=True)
def _cupy_alone(monkeypatch):
    monkeypatch.setattr(devices, "accelerator", lambda: cupy)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [*OPERATORS, *UFUNCS, *FUNCTIONS])
def test_an_operation_of_a_cupy_array_and_a_traced_value_is_fdbrs(name, side):
    exact = name.split(".")[-1] in {
        *("and_", "or_", "xor", "lshift", "rshift", "gcd", "lcm"),
        *(f"bitwise_{n}" for n in ("and", "or", "xor")),
        *("left_shift", "right_shift", "ldexp"),
    }
    array = over_host(np.ones((3, 3), int)) if exact else X
    trace = Noting()
    operands = (array, trace.value(array))[:: 1 if side == "left" else -1]
    try:
        out = (OPERATORS | UFUNCS | FUNCTIONS)[name](*operands)
    except ERROR as error:  # where fdbr's operation computes something beside the traced value
        frames = traceback.extract_tb(error.__traceback__)
        assert any("/fdbr/ops/" in f.filename or "/fdbr/interop/" in f.filename for f in frames)
    else:
        assert trace.seen
        assert all(isinstance(part, Tracer) for part in fdbr.tree.leaves(out))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_traced_number_beside_a_cupy_array_is_fdbrs(name):
    trace = Noting()
    try:
        OPERATORS[name](X, trace.value(2.0))
    except ERROR:
        pass
    else:
        assert trace.seen


def test_what_fdbr_knows_of_a_cupy_array():
    assert is_array(X)
    assert array_module(X) is cupy
    assert array_module(np.ones(2), X) is cupy
    assert devices.scipy_of(cupy, "special").__name__ == "cupyx.scipy.special"
    assert not is_locked(X)  # anybody may write to it, and it has no flag to say otherwise
    assert keep(keep_as_is := np.float32(1)) is keep_as_is
    assert lock(X) is X


def dtypes_of(function, args):
    """The dtypes of results, or `None` if the function refuses its arguments."""
    try:
        with np.errstate(all="ignore"):
            out = function(*args)
    except (TypeError, ValueError, OverflowError):
        return None
    return [part.dtype for part in (out if isinstance(out, tuple) else (out,))]


def chosen_by_cupy(ufunc, args):
    """The same for a ufunc of CuPy, without calling it."""
    scalar = pytest.importorskip("cupy._core._scalar").CScalar
    args = [arg if isinstance(arg, cupy.ndarray) else scalar(arg) for arg in args]
    try:
        found = ufunc._ops.guess_routine(ufunc.name, {}, args, None, None)
    except (TypeError, OverflowError):
        return None
    return [np.dtype(kind) for kind in found.out_types]


NAMES = [
    name
    for name in sorted(dir(np))
    if isinstance(getattr(np, name), np.ufunc) and hasattr(getattr(cupy, name, None), "_ops")
]


@pytest.mark.parametrize("name", NAMES)
def test_the_shadow_module_gives_the_dtypes_that_cupy_gives(name):
    theirs, mine = getattr(cupy, name), getattr(shadow.module, name)
    hosts = [np.ones(2, dtype) for dtype in DTYPES]
    for arrays in itertools.product(hosts, repeat=mine.nin):
        found = dtypes_of(mine, [shadow.asarray(array) for array in arrays])
        expected = chosen_by_cupy(theirs, [over_host(array) for array in arrays])
        lenient = found is None or (name == "sign" and arrays[0].dtype == bool)
        assert found == expected or lenient, [array.dtype for array in arrays]


@pytest.mark.parametrize("name", ["add", "multiply", "true_divide", "power", "maximum", "less"])
@pytest.mark.parametrize("number", [True, 2, 2.5, 1j])
def test_numbers_are_as_weak_for_the_shadow_module_as_for_cupy(name, number):
    theirs, mine = getattr(cupy, name), getattr(shadow.module, name)
    for dtype in DTYPES:
        host = np.ones(2, dtype)
        found = dtypes_of(mine, [shadow.asarray(host), number])
        assert found == chosen_by_cupy(theirs, [over_host(host), number]) or found is None, dtype


def test_the_shadow_module_lacks_what_cupy_lacks():
    for path in ("", "linalg", "fft"):
        real, stand_in, plain = (
            getattr(module, path) if path else module for module in (cupy, shadow.module, np)
        )
        for name in dir(plain):
            if callable(getattr(plain, name)) and not isinstance(getattr(plain, name), type):
                has = hasattr(real, name) or name.startswith("_")
                assert has or not hasattr(stand_in, name), f"{path}.{name}"


def calls_of_array_modules():
    """What fdbr's source calls of an array module ``xp``: where, its path, and its keywords."""
    root = Path(fdbr.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            called = node.func if isinstance(node, ast.Call) else node
            if isinstance(called, ast.Attribute) and ast.unparse(called).startswith("xp."):
                keywords = node.keywords if isinstance(node, ast.Call) else []
                names = {keyword.arg for keyword in keywords if keyword.arg}
                yield f"{file.relative_to(root)}:{node.lineno}", ast.unparse(called)[3:], names


def test_cupy_has_every_function_that_fdbr_calls_with_these_arguments():
    found = set()
    for where, path, names in calls_of_array_modules():
        if not path.replace(".", "").replace("_", "").isalnum():
            continue  # a method of a result
        if hasattr(functions, path) and not hasattr(np, path):
            continue  # it is asked of kernels' own module alone
        found.add(path)
        function = functools.reduce(getattr, path.split("."), cupy)
        try:
            known = inspect.signature(function).parameters
        except (TypeError, ValueError):  # compiled: it says nothing of its arguments
            continue
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            assert names <= set(known), f"{where}: cupy.{path} takes no {names - set(known)}"
    assert len(found) > 100

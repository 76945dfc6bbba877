"""What every test may ask for: hypothesis profiles, and the array modules.

`xp` is a parameter: a test that takes it runs once for each array module, NumPy, the shadow
module (see shadow/) and, where there is a GPU, CuPy.  Make arrays with ``xp.asarray(...)`` and
compare them as ``to_numpy(...)``.
"""

import gc
import os
import signal
import tempfile

from fdbr.backends.cpu.tuning import TUNING

# The arrays of tests are small: more threads would only wait for each other.  The libraries
# read this when NumPy is imported.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("FDBR_NUM_THREADS", "2")  # of kernels, for which there are tests
# Compiled kernels are kept from one test to the next, and not for longer.
if "FDBR_CACHE_DIR" not in os.environ:
    _kernels = tempfile.TemporaryDirectory(prefix="fdbr-kernels-", ignore_cleanup_errors=True)
    os.environ["FDBR_CACHE_DIR"] = _kernels.name

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.core
import numpy as np
import pytest
import shadow
from garbage import set_aside
from hypothesis import HealthCheck, settings
from sizes import use_kernels_from

from fdbr import backend
from fdbr.core import devices
from fdbr.train.loop import interrupts

# Hypothesis reads the source of a test for each of its parameters, and of laws within tests.
_digests: dict[Any, bytes] = {}
_digest = hypothesis.core.function_digest


def digest_of_code(function: Callable[..., Any]) -> bytes:
    """Return Hypothesis's digest of the first function with the same code."""
    code = getattr(function, "__code__", function)
    if code not in _digests:
        _digests[code] = _digest(function)
    return _digests[code]


hypothesis.core.function_digest = digest_of_code
# As a shell does that starts programs in the background; tests are of what Ctrl-C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

devices.beside[shadow.module.__name__] = shadow.beside

# The same examples on every run and every machine: a red test is red for everybody.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
# New examples every time, and many of them: for hunting, and before a release.
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# Few examples, where each takes long: with --jit every one is compiled.
settings.register_profile("quick", parent=settings.get_profile("ci"), max_examples=6)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--jit",
        action="store_true",
        help="jit every function that the tests of operations test: run tests/ops with it",
    )
    parser.addoption(
        "--kernels",
        action="store_true",
        help="compute what is not large by kernels too: run tests/ops with it",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--jit"):
        os.environ["FDBR_TEST_JIT"] = "1"  # for ops/cases.py, also in the workers of xdist
    if config.getoption("--kernels"):
        use_kernels_from(0, pytest.MonkeyPatch())
        TUNING.reduced_row = TUNING.reduced_columns = TUNING.stack_kernel = 1


def pytest_collection_finish() -> None:
    set_aside()


def _cupy() -> Any:
    """CuPy, or a skip that says why not."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no GPU: {error}")
    return cupy


# Once per module rather than per test, so that hypothesis tests may take it.
@pytest.fixture(scope="module", params=["numpy", "shadow", "cupy"])
def xp(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An array module; devices by their number are those of the shadow module beside it."""
    if request.param == "cupy":
        yield _cupy()
        return
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "shadow":
            patch.setattr(devices, "accelerator", lambda: shadow.module)
        yield {"numpy": np, "shadow": shadow.module}[request.param]


@pytest.fixture(autouse=True)
def settings_are_not_nested(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hypothesis's settings of a test stay what they are from parameter to parameter.

    Its plugin wraps them once more for each, and looks through a thousand wrappings recursively.
    """
    function = getattr(request.function, "__func__", request.function)  # of a method
    name = "_hypothesis_internal_use_settings"
    before = getattr(function, name, None)
    yield
    if before is not None:
        setattr(function, name, before)


@pytest.fixture
def two_devices() -> Iterator[None]:
    """An array module with two devices has been met, as the shadow is, whatever ran before."""
    met = backend.several[:]
    backend.several[:] = [shadow.module]
    yield
    # A module enters itself only when it is first met, which may have been during this test.
    backend.several[:] = {*met, shadow.module}


@pytest.fixture(scope="session")
def to_numpy() -> Callable[[Any], Any]:
    """A function from an array of any module to a NumPy array."""
    return lambda array: array.get() if hasattr(array, "get") else np.asarray(array)


@pytest.fixture(autouse=True)
def no_run_is_left() -> Iterator[None]:
    """No suspended run of `train.fit` takes Ctrl-C from a later test of the same process.

    Examples, also those in docstrings, leave runs in reference cycles.
    """
    if interrupts._runs:
        gc.collect()
    yield
    if interrupts._runs:
        gc.collect()
    assert not interrupts._runs, "the test keeps a suspended run of train.fit: close it"

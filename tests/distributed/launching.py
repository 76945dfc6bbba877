"""Programs on many ranks, each a process that MPI's launcher starts."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_ENVIRONMENT = {
    # A core is for a rank, or for two.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "FDBR_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # each rank would compile fdbr again, which takes seconds
    "PYTHONUNBUFFERED": "",  # what a rank prints and flushes comes in one piece
    # Where Open MPI is installed: it wants to be told that this is meant.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def launcher():
    """The path of mpiexec; a test that asks for it is skipped where there is none."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install 'fdbr[mpi]'")
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec: pip install 'fdbr[mpi]', or install an MPI library")
    return found


def start(n, program, *arguments, env=None):
    """Start a program on ``n`` ranks: a `subprocess.Popen` with pipes.

    ``program`` is the path of a file, or source code, of which a file is made.  It imports this
    tree's fdbr and what is in ``tests/``.
    """
    mpiexec = launcher()
    path = program
    if "\n" in str(program):
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
            file.write(textwrap.dedent(program))
        path = file.name
    before = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *([before] if before else [])])
    process = subprocess.Popen(
        [mpiexec, "-n", str(n), sys.executable, str(path), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": paths, **(env or {})},
        start_new_session=True,
    )
    if path is not program:
        process.source = path
    return process


def finish(process, timeout=60.0):
    """Wait for the end of what `start` gave: a `subprocess.CompletedProcess`.

    After ``timeout`` seconds all its processes are killed, and `AssertionError` says what they had
    written.
    """
    late = False
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        late = True
        kill(process)
        out, err = process.communicate()
    except BaseException:
        kill(process)
        process.communicate()
        raise
    finally:
        if hasattr(process, "source"):
            os.unlink(process.source)
    said = f"\n--- output\n{out}\n--- errors\n{err}"
    assert not late, f"the ranks have not ended within {timeout:g} s{said}"
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def mpiexec(n, program, *arguments, timeout=60.0, env=None):
    """Run a program on ``n`` ranks: a `subprocess.CompletedProcess` with the text of all ranks."""
    return finish(start(n, program, *arguments, env=env), timeout)


def kill(process):
    """Kill a process and all that have come of it, in whatever session they are."""
    for number in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def descendants(number):
    """The processes that have come of one, by their numbers."""
    children = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    found = []
    waiting = [number]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


def ranks(process):
    """The processes of the ranks of what `start` gave."""
    programs = []
    for number in descendants(process.pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
            if words[0].decode() == sys.executable:
                programs.append(number)
    return sorted(programs)

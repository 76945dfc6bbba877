"""Sweeps on executors that have other machines work: mpi4py's and Dask's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cattrs", reason="sweeps read and write configurations with cattrs")

EXPERIMENT = """
import sys

import attrs
import numpy as np

from fdbr import train


@attrs.frozen
class Config:
    rate: float = 0.1
    seed: int = 0


def run(config):
    if config.seed == 1:
        raise ValueError("seed 1 is unlucky")

    def step(state, batch):
        return state - config.rate * state, {"loss": state**2}

    batches = train.Batches(np.arange(4.0), 2)
    return train.pipe(train.fit(step, 1.0, batches, epochs=2), train.average())


def show(executor):
    configs = train.grid(Config(), rate=[0.1, 0.01], seed=[0, 1])
    every = train.every(epochs=1)
    for r in train.sweep(run, configs, sys.argv[1], executor=executor, every=every):
        print(r.config.rate, r.config.seed, r.state, r.epoch, r.error or "")
"""
MPI = """
if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as executor:
        show(executor)
"""
DASK = """
if __name__ == "__main__":
    from dask.distributed import Client

    alone = {"dashboard_address": None, "threads_per_worker": 1, "processes": False}
    with Client(n_workers=2, **alone) as client:
        show(client.get_executor())
"""


def shown(tmp_path, command, source):
    """The lines that a sweep prints which is run as a script."""
    script = tmp_path / "experiment.py"
    script.write_text(EXPERIMENT + source)
    path = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    threads = {f"{name}_NUM_THREADS": "1" for name in ("FDBR", "OPENBLAS", "OMP")}
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    done = subprocess.run(
        [*command, str(script), str(tmp_path / "result")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check(lines):
    for rate in ("0.1", "0.01"):
        ours = [line for line in lines if line.startswith(f"{rate} 0 ")]
        assert [line.split()[2:] for line in ours] == [
            ["running", "1"],
            ["running", "2"],
            ["finished", "2"],
        ]
        assert f"{rate} 1 failed 0 ValueError: seed 1 is unlucky" in lines


@pytest.mark.slow
def test_ranks_of_mpi_run_a_sweep(tmp_path):
    pytest.importorskip("mpi4py", reason="needs pip install 'fdbr[mpi]'")
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        pytest.skip("there is no mpiexec")
    check(shown(tmp_path, [launcher, "-n", "3", sys.executable, "-m", "mpi4py.futures"], MPI))


def test_workers_of_dask_run_a_sweep(tmp_path):
    pytest.importorskip("dask.distributed", reason="needs pip install 'dask[distributed]'")
    check(shown(tmp_path, [sys.executable], DASK))


class Pool:
    """An executor that says how many calls it works on, in mpi4py's way."""

    num_workers = 3


class Cluster:
    """One that says it in Dask's."""

    class _client:
        nthreads = staticmethod(lambda: {"a": 2, "b": 5})


@pytest.mark.parametrize(("executor", "runs"), [(Pool(), 3), (Cluster(), 7)])
def test_as_many_runs_begin_as_an_executor_has_workers(executor, runs):
    from fdbr.train.sweeps.sweep import _room

    assert _room(executor) == runs

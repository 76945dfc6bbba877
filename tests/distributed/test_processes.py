"""Ranks that are processes."""

from pathlib import Path

from launching import mpiexec

HERE = Path(__file__).parent


def test_a_program_runs_on_many_ranks():
    program = """
    import numpy as np
    from fdbr import distributed as d

    comm = d.world()
    print(comm.rank, comm.size, float(d.all_reduce(np.float64(comm.rank + 1), comm)), flush=True)
    """
    found = mpiexec(3, program)
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.splitlines()) == ["0 3 6.0", "1 3 6.0", "2 3 6.0"]


def test_each_collective_of_each_dtype_is_what_numpy_says_on_1_to_4_ranks():
    found = mpiexec(4, HERE / "agreeing.py", timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["whole"] * 4

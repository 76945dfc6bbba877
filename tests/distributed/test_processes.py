"""Ranks that are processes."""

from launching import mpiexec


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

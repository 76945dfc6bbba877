"""The command line: ``python -m benchmarks [WORKLOAD ...]``."""

import argparse
import os

THREADS = 2
WORKLOADS = ("rosen10", "mlp", "per_example", "hvp")


def main() -> None:
    """Run the chosen workloads and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {WORKLOADS}")
    parser.add_argument("--rounds", type=int, default=15, help="timed repeats of each library")
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload {sorted(unknown)}; there are {list(WORKLOADS)}")
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")

    # The thread pools read these when NumPy is imported, so it is imported after them.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(THREADS)
    from benchmarks import report

    report.run(arguments.workloads or WORKLOADS, arguments.rounds, THREADS)


if __name__ == "__main__":
    main()

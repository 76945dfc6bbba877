"""What many ranks cost, beside MPI alone: ``python -m benchmarks distributed``."""

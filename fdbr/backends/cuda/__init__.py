"""The back end of CUDA: implementations of operations on GPUs in CUDA C."""

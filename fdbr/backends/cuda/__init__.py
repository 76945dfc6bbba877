"""What is computed on GPUs by CUDA C."""

"""Loads the modules that register implementations of operations in CUDA C."""

# ruff: noqa: F401
import fdbr.backends.cuda.adam
import fdbr.backends.cuda.philox
import fdbr.backends.cuda.suppression
from fdbr.core import loading

loading.finish("cuda")

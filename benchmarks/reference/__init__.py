"""PyTorch's values and gradients of functions and layers, recorded for the tests.

``python -m benchmarks.reference`` records those of all families, with names those of some.  Each
family is a module here, whose ``cases()`` yields names and arrays: inputs, settings as arrays,
outputs and gradients, as PyTorch computes them.  They are written to ``tests/nn/reference/``, from
where `nn.recorded` reads them, so the tests need no PyTorch.
"""

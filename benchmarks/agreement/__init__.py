"""Whether fdbr agrees with JAX and PyTorch on random programs, in float64.

``python -m benchmarks.agreement --programs 300`` prints the worst disagreement with each library.

A program is a straight line of operations, drawn from a seed (`programs`); each operation is
written once, in the names of `operations`, and each library says what it calls them
(`libraries`).  Compared are the value of a loss that depends on everything the program computes,
its gradient by all inputs, and a Hessian-vector product; and fdbr with itself, by other
compositions of its transformations.
"""

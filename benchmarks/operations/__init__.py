"""Single operations of fdbr beside PyTorch's.

``python -m benchmarks ops`` times every public operation that has a counterpart: its value, and
its value and gradient, eager and jitted, at several sizes.  It prints a table and writes
``result/operations.json``; ``python -m benchmarks ops --help`` names its options.

A `Program` is one use of one operation, written once for each library.  The modules
`elementwise`, `arrays`, `algebra` and `networks` hold them; `absent` says of the other operations
why they have none.
"""

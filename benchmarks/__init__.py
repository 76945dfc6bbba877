"""fdbr side by side with other libraries, on the same arithmetic, in one run.

``python -m benchmarks [WORKLOAD ...]`` prints the tables and writes ``result/benchmarks.json``
and ``result/benchmarks.png``; ``python -m benchmarks --list`` names the workloads.
``python -m benchmarks ops`` times single operations: see `benchmarks.operations`.
``python -m benchmarks research`` times research programs from a cold start: see
`benchmarks.research`.

A workload is one module of `benchmarks.workloads` that has

- ``TITLE``: a line for the table;
- ``RTOL``: how closely the libraries must agree before anything is timed;
- ``Sizes``: a frozen class whose defaults are the workload, and ``TINY``, an instance for tests;
- one function for each library that takes part, ``fdbr``, ``torch``, ``jax`` or ``autograd``,
  from sizes to ``(step, state, batch)``.  ``step(state, batch)`` gives the next state and a
  result to compare: a loss, or a tree of arrays.  All libraries begin with the same numbers;
- ``ABSENT``, where a library cannot take part: the reason, by its name;
- ``PRODUCTS``, where matrix products are most of the work: functions by name, from sizes to a
  function without arguments that does these products in NumPy and nothing else.

fdbr's step is a pure function of all that it computes with, the optimizer included; what is
timed as ``fdbr.jit`` is ``fdbr.jit(step)``, and what is timed as ``torch.compile`` is PyTorch's
step compiled.  `libraries` knows how each library is made ready.
"""

"""fdbr side by side with other libraries, on the same arithmetic, in one run.

``python -m benchmarks [WORKLOAD ...]`` prints the table.

A workload is one small module of this folder, listed in `__main__.py`, that has

- ``TITLE``: a line for the table;
- ``RTOL``: how closely the libraries must agree before anything is timed;
- one function for each library that takes part, named as in `peers.py` (``fdbr``, ``torch``, …),
  which imports the library, prepares everything, and returns a function without arguments.
  Calling that does one unit of work and returns a result to compare.

A peer is one entry of `peers.py`.
"""

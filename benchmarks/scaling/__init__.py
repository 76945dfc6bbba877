"""How long a training step takes on many ranks: a cost model, a simulation, and measurements.

``python -m benchmarks.scaling paper`` holds the model against the figures of the KDD paper on
Chainer, ``predict`` gives step times and efficiencies up to 1,024 ranks, ``simulate`` shows what
stragglers do to the overlap of communication with the backward pass, and, started by
``mpiexec -n 2``, ``measure`` fits the model's parameters on the ranks at hand.

Of networks (`links`) the model knows two numbers: a message of n bytes takes ``α + β n`` seconds.
That is LogGP with ``α = L + 2 o`` and ``β = G``: sending takes no processor time beyond what
`Simulation` is told of (``theft``), and the gap between messages is that of their bytes.
"""

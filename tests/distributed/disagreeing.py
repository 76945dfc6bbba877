"""Calls that do not come about, on three ranks: a program for test_processes_that_fail.py.

Each case has a communicator of its own, as what fails breaks it; each rank writes a file in the
folder that is given, JSON with what it has seen.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from fdbr import distributed as d

comm = d.world(timeout=60.0)
brief = d.world(timeout=0.6)
report = Path(sys.argv[1], f"{comm.rank}.json")
seen = {}


def seeing(name, make, *calls):
    """Have rank ``i`` call ``calls[i]``, and note the error and how long it took."""
    made = d.Communicator(make.transport.duplicate(), make.timeout)
    began = time.monotonic()
    try:
        value = calls[comm.rank](made)
        seen[name] = ["", repr(value)]
    except d.DistributedError as error:
        seen[name] = [type(error).__name__, str(error)]
    seen[name].append(time.monotonic() - began)
    try:
        d.barrier(made)
        seen[name].append("")
    except d.DistributedError as error:
        seen[name].append(f"{type(error).__name__}: {error}")
    d.barrier(comm)


x = np.ones(3)
total = lambda c: d.all_reduce(x, c)
nothing = lambda c: None
seeing("op", comm, total, lambda c: d.all_reduce(x, c, "max"), total)
seeing("name", comm, total, lambda c: d.all_gather(x, c), lambda c: d.barrier(c))
seeing("shape", comm, total, total, lambda c: d.all_reduce(np.ones((3, 1), "float32"), c))
seeing("root", comm, *[lambda c, r=r: d.broadcast(x, c, root=r) for r in (0, 0, 1)])
seeing("extreme", comm, *[lambda c, r=r: d.reduce(x, c, "max", r) for r in (0, 0, 1)])
seeing("objects", comm, *[lambda c, r=r: d.gather_object(1, c, r) for r in (0, 0, 1)])
seeing("split", comm, total, lambda c: c.split(0), total)
seeing("wire", comm, *[lambda c, w=w: d.all_reduce(x, c, wire=w) for w in (None, None, "float16")])
trees = {"a": x, "b": None}, {"a": x, "b": None}, [None, x]
seeing("structure", comm, *[lambda c, tree=tree: d.all_reduce(tree, c) for tree in trees])
trees = [x], (x,), [x]
seeing("taken", comm, *[lambda c, tree=tree: d.broadcast(tree, c) for tree in trees])
seeing("object", comm, lambda c: d.all_gather_object(1, c), total, total)
seeing("missing", brief, total, total, lambda c: time.sleep(1.5))
seeing("late", brief, total, total, lambda c: (time.sleep(1.5), total(c))[1])
seeing(
    "crossed",
    brief,
    lambda c: d.receive(x, c, source=1),
    lambda c: d.receive(x, c, source=0),
    nothing,
)
seeing("alone", brief, lambda c: d.receive(x, c, source=1), total, total)
seeing(
    "message",
    brief,
    lambda c: d.send(x, c, to=1),
    lambda c: d.receive(np.ones(4), c, source=0),
    nothing,
)
seeing(
    "message of another wire",
    brief,
    lambda c: d.send(x, c, to=1, wire="float16"),
    lambda c: d.receive(x, c, source=0),
    nothing,
)
seeing(
    "object for array",
    brief,
    lambda c: d.send_object(1, c, to=1),
    lambda c: d.receive(x, c, source=0),
    nothing,
)
seeing("tag", brief, lambda c: d.send(x, c, 1, 3), lambda c: d.receive(x, c, 0, 4), nothing)
seen["whole"] = ["", repr(float(d.all_reduce(1.0, comm))), 0.0, ""]
if comm.rank == 2:
    report.write_text(json.dumps(seen))
    sys.exit(7)
began = time.monotonic()
try:
    d.all_reduce(x, comm)
except d.RankFailedError as error:
    seen["ended"] = [type(error).__name__, str(error), time.monotonic() - began, ""]
report.write_text(json.dumps(seen))

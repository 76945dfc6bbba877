"""Tools to see what a program does: drawings, hooks, profiles, and checks.

`draw` draws the tape of a function.  The others are context managers: `timer` and `memory` tell
what each operation, and each line, costs; `printing` and `hook` follow the operations one by one;
`nan_check` finds the operation and the line that made the first NaN, forward or backward;
`leak_check` finds traced values that outlive their transformation.  `print` and `callback` show
values from within a function, in every call of a jitted one, too.

They see what their own thread or task does in the block, under all transformations; and they cost
nothing where there is no such block.
"""

from fdbr.debug.callbacks import callback, print
from fdbr.debug.drawing import draw
from fdbr.debug.graph import Edge, Graph, Node
from fdbr.debug.hooks import Profile, annotate, hook, memory, printing, timer
from fdbr.debug.leaks import Leak, LeakCheck, LeakError, leak_check
from fdbr.debug.nans import NaNError, nan_check
from fdbr.debug.observing import Application
from fdbr.debug.sources import Source
from fdbr.debug.tables import Row, Table

__all__ = [
    "Application",
    "Edge",
    "Graph",
    "Leak",
    "LeakCheck",
    "LeakError",
    "NaNError",
    "Node",
    "Profile",
    "Row",
    "Source",
    "Table",
    "annotate",
    "callback",
    "draw",
    "hook",
    "leak_check",
    "memory",
    "nan_check",
    "print",
    "printing",
    "timer",
]
__dir__ = __all__.copy  # `dir` shows the public names alone

"""Errors for NumPy's functions that have no meaning for traced values."""

import numpy as np

from fdbr.core.tracer_methods import functions, refusing

_OUTSIDE = (
    "return the value (has_aux=True passes further results out) and {} what the transformation "
    "gives"
)

for _names, _why, _instead in (
    (
        "busday_count busday_offset is_busday",
        "dates are no numbers, and no transformation reaches them",
        "find out about the dates before the transformation, and pass numbers into it",
    ),
    (
        "datetime_as_string",
        "dates and texts are no numbers, and no transformation reaches them",
        _OUTSIDE.format("write out"),
    ),
    (
        "save savetxt savez savez_compressed",
        "writing to a file is an effect, no function of the value",
        _OUTSIDE.format("save"),
    ),
    (
        "may_share_memory shares_memory",
        "where elements lie is no function of them, and arrays are never written to here",
        "ask whether x is y, or " + _OUTSIDE.format("ask it of"),
    ),
):
    for _name in _names.split():
        functions[getattr(np, _name)] = refusing(
            f"np.{_name} of a traced value: {_why}; {_instead}"
        )

for _name, _instead in {
    "copyto": "dst = ops.where(where, src, dst), or ops.full_like(a, x) for np.full_like(a, x), "
    "which calls np.copyto",
    "fill_diagonal": "a = ops.at(a)[i, i].set(value) with i = np.arange(n)",
    "place": "arr = ops.at(arr)[mask].set(vals)",
    "put": "a = ops.at(ops.reshape(a, -1))[ind].set(v)",
    "put_along_axis": "arr = ops.scatter(arr, axis, indices, values)",
    "putmask": "a = ops.where(mask, values, a)",
}.items():
    functions[getattr(np, _name)] = refusing(
        f"np.{_name} with a traced value: arrays are never written to here. Write {_instead}.",
        writes=True,
    )

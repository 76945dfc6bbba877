"""The rules of `simplify`: each is one small function in a table."""

from fdbr.jit.passes.rules import (
    arithmetic,
    constants,
    joining,
    products,
    shapes,
    signs,
    slicing,
)
from fdbr.jit.passes.rules.table import Facts, Same, rules_for

__all__ = [
    "Facts",
    "Same",
    "arithmetic",
    "constants",
    "joining",
    "products",
    "rules_for",
    "shapes",
    "signs",
    "slicing",
]

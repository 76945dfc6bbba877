"""The rules of `simplify`: each is one small function in a table."""

from fdbr.compiler.passes.rules import (
    algebra,
    joining,
    matmul_rules,
    reshaping,
    signs,
    slicing,
    uniform_constants,
)
from fdbr.compiler.passes.rules.table import Facts, Same, rules_for

__all__ = [
    "Facts",
    "Same",
    "algebra",
    "joining",
    "matmul_rules",
    "reshaping",
    "rules_for",
    "signs",
    "slicing",
    "uniform_constants",
]

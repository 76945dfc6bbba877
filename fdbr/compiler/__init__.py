"""The compiler behind `fdbr.jit`: captured programs, passes over them, and back ends."""

import typing

from fdbr.errors.names import missing_from

if typing.TYPE_CHECKING:
    from fdbr.compiler.capture.watch.captures import ImpureError
    from fdbr.compiler.engine.decorator import jit
    from fdbr.compiler.engine.donation import DonatedError
    from fdbr.compiler.engine.jitted import Jitted, disable_jit
    from fdbr.compiler.engine.report import Report

__all__ = ["DonatedError", "ImpureError", "Jitted", "Report", "disable_jit", "jit"]

# Eager operations need the names of primitives in `ir`, and none of the modules here.
_LATER = {
    "DonatedError": "fdbr.compiler.engine.donation",
    "ImpureError": "fdbr.compiler.capture.watch.captures",
    "Jitted": "fdbr.compiler.engine.jitted",
    "Report": "fdbr.compiler.engine.report",
    "disable_jit": "fdbr.compiler.engine.jitted",
    "jit": "fdbr.compiler.engine.decorator",
}
globals().update(__getattr__=missing_from(__name__, _LATER))  # type checkers see no `__getattr__`

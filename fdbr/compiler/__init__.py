"""The compiler behind `fdbr.jit`: captured programs, passes over them, and back ends."""

from fdbr.compiler.capture.watch.captures import ImpureError
from fdbr.compiler.engine.decorator import jit
from fdbr.compiler.engine.donation import DonatedError
from fdbr.compiler.engine.jitted import Jitted, disable_jit
from fdbr.compiler.engine.report import Report

__all__ = ["DonatedError", "ImpureError", "Jitted", "Report", "disable_jit", "jit"]

"""The compiler behind `fdbr.jit`: captured programs, passes over them, and back ends."""

from fdbr.compiler.backends.cpu.backend import CPU
from fdbr.compiler.backends.interface import register
from fdbr.compiler.capture.captures import ImpureError
from fdbr.compiler.decorator import jit
from fdbr.compiler.donation import DonatedError
from fdbr.compiler.function import Jitted, disable_jit
from fdbr.compiler.report import Report

__all__ = ["DonatedError", "ImpureError", "Jitted", "Report", "disable_jit", "jit"]

register(CPU)

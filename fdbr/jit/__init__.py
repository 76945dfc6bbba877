"""The recorded program, its passes, and its back ends."""

from fdbr.jit.donation import DonatedError
from fdbr.jit.environment import ImpureError
from fdbr.jit.function import Jitted, jit
from fdbr.jit.report import Report

__all__ = ["DonatedError", "ImpureError", "Jitted", "Report", "jit"]

"""Traced control flow: Python's decisions are recorded in runs, and then taken without Python."""

from fdbr.control_flow.traced.capture import Learner

__all__ = ["Learner"]

"""Control flow of Python that is learnt from runs, and then goes on without Python."""

from fdbr.control_flow.traced.capture import Learner

__all__ = ["Learner"]

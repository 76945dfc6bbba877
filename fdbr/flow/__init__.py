"""Control flow of Python that is learnt from runs, and then goes on without Python."""

from fdbr.flow.staging import Learner

__all__ = ["Learner"]

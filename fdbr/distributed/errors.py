"""The errors of runs on many ranks."""

__all__ = ["CollectiveTimeoutError", "DistributedError", "MismatchError", "RankFailedError"]


class DistributedError(RuntimeError):
    """A call that several ranks take part in did not come about."""


class MismatchError(DistributedError):
    """Ranks called different collectives, or the same with arrays that do not fit together."""


class CollectiveTimeoutError(DistributedError):
    """A rank waited longer for others than the communicator's ``timeout``."""


class RankFailedError(DistributedError):
    """Another rank failed, so a collective cannot come about."""

"""Positions: where a run has come in its data, and what its stages have kept by then."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.tree import frozen, static

__all__ = ["NOTHING", "Carried", "Position"]

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Carried:
    """Things that a position carries along, and that are no part of it.

    All are equal, so that positions are compared, as trees and by ``==``, without it.
    """

    __slots__ = ("kept", "last", "resumed", "seconds", "written")

    def __init__(
        self,
        kept: Mapping[str, Any] = NOTHING,
        seconds: float = 0.0,
        written: frozenset[str] = frozenset(),
        last: str | None = None,
        resumed: bool = False,
    ) -> None:
        self.kept = kept
        self.seconds = seconds
        self.written = written  # by the stages that this report has gone through
        self.last = last  # the stage after which none may keep anything
        self.resumed = resumed  # whether the run had parts before this one

    def __eq__(self, other: object) -> bool:
        return type(other) is Carried

    def __hash__(self) -> int:
        return 0

    def __getstate__(self) -> tuple[Any, ...]:
        return dict(self.kept), self.seconds

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Carried.__init__(self, MappingProxyType(state[0]), state[1])

    def with_state(self, name: str, state: Any) -> "Carried":
        """The same with what a stage keeps."""
        self._check(name)
        if self.last is not None:
            raise ValueError(
                f"fdbr.train.pipe: the stage {name!r} keeps a state, but it stands after "
                f"{self.last}, which saves what stages keep; put {self.last} last"
            )
        kept = MappingProxyType({**self.kept, name: state})
        return Carried(kept, self.seconds, self.written | {name}, None, self.resumed)

    def state_of(self, name: str, otherwise: Any) -> Any:
        """The state that a stage has kept in an earlier part of the run, or something else."""
        self._check(name)
        return self.kept.get(name, otherwise)

    def _check(self, name: str) -> None:
        if name in self.written:
            raise ValueError(
                f"fdbr.train.pipe: two stages keep their state under the name {name!r}; give one "
                "of them another, name=…"
            )

    def sealed(self, stage: str) -> "Carried":
        """The same, to which no stage can add anything."""
        return Carried(self.kept, self.seconds, self.written, stage, self.resumed)


@public("fdbr.train")
@frozen
class Position:
    """The point to which a run has come in its data.

    Two positions are equal if they are in one place: what they carry along does not count.

    Attributes
    ----------
    epoch
        How many epochs are finished.
    batch
        How many batches of the next one are consumed; 0 at the end of an epoch.
    kept
        What the stages keep, from the name of each to its state: a read-only mapping.  A run
        that continues from the position gives it back to them.
    seconds
        How long the run has taken.

    >>> from fdbr import train
    >>> train.Position(2, 7, kept={"best": 0.5}) == train.Position(2, 7)
    True
    """

    epoch: int = 0
    batch: int = 0
    carried: Carried = static(default=Carried(), repr=False)

    def __init__(
        self,
        epoch: int = 0,
        batch: int = 0,
        kept: Mapping[str, Any] = NOTHING,
        seconds: float = 0.0,
    ) -> None:
        if not isinstance(kept, Mapping):
            raise TypeError(
                "fdbr.train.Position: kept must be a mapping from the names of stages to what "
                f"they keep, not {describe(kept)}"
            )
        carried = Carried(MappingProxyType(dict(kept)), seconds)
        self.__attrs_init__(epoch, batch, carried)  # type: ignore[attr-defined]

    @classmethod
    def carrying(cls, epoch: int, batch: int, carried: Carried) -> "Position":
        """A position with what it carries."""
        made = cls.__new__(cls)
        made.__attrs_init__(epoch, batch, carried)  # type: ignore[attr-defined]
        return made

    @property
    def kept(self) -> Mapping[str, Any]:
        """The states of the stages, by their names."""
        return self.carried.kept

    @property
    def seconds(self) -> float:
        """The time that the run has taken."""
        return self.carried.seconds

"""Where a target is to be purged: its parts, and the stretches into which workers have cut them.

This module must not know what a store's marks mean.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.culprits import CulpritSearch
from ttl_odm.sweeper.store import Skip

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ttl_odm.sweeper.store import Part

_LONGEST: Final = 64
"""Batches after which to ask again, at the most, whether a stretch can be divided."""


@dataclass(slots=True, eq=False)
class Place:
    """How far a part, or a stretch of one, has been purged.

    Attributes:
        resume: Where its next batch begins; None at the beginning of a part.
        until: Where the next stretch begins; None at the end of a part.
        error: Why its last batch has failed, beside those of others.
        skips: Rows that were left so far, by reason.
        begin: Where a stretch begins that was cut off; None for a part.
        is_again: Whether it is gone through once more; that is done as a whole.
    """

    part: Part
    resume: object = None
    until: object = None
    search: CulpritSearch = field(default_factory=CulpritSearch)
    error: Exception | None = None
    skips: Counter[Skip] = field(default_factory=Counter)
    begin: object = None
    is_again: bool = False
    _patience: int = 1
    _batches: int = 0

    @property
    def may_have_company(self) -> bool:
        """Whether batches of other stretches may run beside its next one.

        The first batch of a part is alone: a store may have to look at what is the same for all.
        """
        is_begun = self.resume is not None or self.until is not None
        is_alone = self.part.whole or self.part.last
        return is_begun and not is_alone and self.error is None

    def asks_to_be_divided(self) -> bool:
        """Whether it is time to ask the store; not for each batch of what can't be divided."""
        if self.is_again or self.search.limit is not None:
            return False
        self._batches += 1
        if self._batches < self._patience:
            return False
        self._batches, self._patience = 0, min(self._patience * 2, _LONGEST)
        return True


class Places:
    """The places that are left, in their order."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._places = list(places)

    def __len__(self) -> int:
        return len(self._places)

    def next(self, at_work: Collection[Place]) -> Place | None:
        """The one whose batch is next; None while that has to wait for those that are at work.

        One that has failed beside others comes first, and alone. Parts are not mixed.
        """
        place = next((place for place in self._places if place.error), None)
        if place is None:
            part = self._places[0].part
            free = (each for each in self._places if each not in at_work and each.part == part)
            place = next(free, None)
        if place is None or (at_work and not place.may_have_company):
            return None
        return place

    def beside(self, place: Place) -> int:
        """How many there are of the same part."""
        return sum(each.part == place.part for each in self._places)

    def divide(self, place: Place, marks: Sequence[object]) -> None:
        """Cut a place by marks that lie in it."""
        if not marks:
            return
        ends = [*marks, place.until]
        place.begin, place.until = place.begin or place.resume, ends[0]
        number = self._places.index(place) + 1
        self._places[number:number] = [
            Place(place.part, begin, end, begin=begin) for begin, end in pairwise(ends)
        ]

    def end(self, place: Place) -> Counter[Skip]:
        """Take one away that was gone through; return what of its skips is not to be counted.

        Where workers are neighbours, one may have skipped rows that the other had locked, such as
        the first one behind its own end on InnoDB. Such a stretch is gone through once more.
        """
        self._places.remove(place)
        if place.begin is None or not place.skips[Skip.LOCKED]:
            return Counter()
        number = self.beside(place)
        self._places.insert(number, Place(place.part, place.begin, place.until, is_again=True))
        return place.skips

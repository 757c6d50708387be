"""Finds of documents that follow others: sent as a pipeline, read as a find.

A find's filter can't look into another collection. So the command that the driver makes of a cursor
is turned into ``aggregate`` when it is sent, by which the server judges at that moment; its answer
has the same form. Each document carries when its parent expires, so what waits in a cursor's buffer
is judged once more before it is handed out, as elsewhere (`ttl_odm.beanie.gate.cursors`).

The cursors are PyMongo's, also those of Motor. This module must not know which of the two it is.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pymongo.message import _Query

from ttl_odm.beanie.rewrite import followed
from ttl_odm.beanie.rewrite.followed import FOLLOWED, HIDE
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.handle import Handle

Result = TypeVar("Result")

_TAKEN: Final = (
    *("find", "filter", "projection", "sort", "skip", "limit", "singleBatch", "batchSize"),
    *("noCursorTimeout", "allowPartialResults", "oplogReplay"),
)
"""Parts of a find that are others in a pipeline, or that it does without."""
_REFUSED: Final = ("tailable", "awaitData", "min", "max", "returnKey", "showRecordId")


@dataclass(frozen=True, slots=True)
class FollowedLifetime:
    """How the documents of one cursor are judged: by the parents that they carry.

    As `ttl_odm.beanie.gate.cursors.Lifetime`. What is `hidden` is taken out before they are shown.
    """

    handle: Handle

    @property
    def _is_shown(self) -> bool:
        return self.handle.gives_plain_documents

    def is_over(self, document: object) -> bool:
        """Say whether the parents of a document have expired by now."""
        following, clock = self.handle.following, self.handle.registry.clock
        if following is None or not clock.is_known or not self._is_shown:
            return False
        return followed.is_over(document, following.root.policy, clock.at_most())

    def strip(self, document: Result) -> Result:
        """Return the document without its parents."""
        if isinstance(document, MutableMapping):
            document.pop(FOLLOWED, None)
        return document

    def listed(self, documents: Sequence[Document], *, is_judged: bool) -> list[Document]:
        """Return those that live, as shown; perhaps the server has judged them at this moment."""
        living = [one for one in documents if is_judged or not self.is_over(one)]
        if living and isinstance(living[0], MutableMapping):
            for document in living:
                document.pop(FOLLOWED, None)
        return living


def follow(cursor: Any, handle: Handle) -> None:
    """Have a cursor, before it has asked anything, find by a pipeline."""
    cursor._query_class = partial(FollowersQuery, handle)


def follow_as(clone: Any, cursor: Any) -> None:
    """Have a clone of a cursor find as that does."""
    own = vars(cursor).get("_query_class")
    if own is not None:
        clone._query_class = own


class FollowersQuery(_Query):
    """A find that is sent as a pipeline."""

    def __init__(self, handle: Handle, *args: Any) -> None:
        """Take what the driver gives."""
        super().__init__(*args)
        self._handle = handle
        self._made: Any = None

    def reset(self) -> None:
        """Make the command anew, for another attempt."""
        super().reset()
        self._made = None

    def as_command(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], str]:
        """Return the command."""
        if self._made is None:
            find, database = super().as_command(*args, **kwargs)
            made = _with_inner(find, self._handle)
            self._as_command = self._made = made, database
        made_command: tuple[dict[str, Any], str] = self._made
        return made_command

    def update_command(self, cmd: dict[str, Any]) -> None:
        """Take the command as it is encrypted."""
        super().update_command(cmd)
        self._made = self._as_command


def _with_inner(command: Filter, handle: Handle) -> Document:
    if isinstance(command.get("explain"), Mapping):
        return {**command, "explain": as_aggregate(command["explain"], handle)}
    return as_aggregate(command, handle)


def as_aggregate(find: Filter, handle: Handle) -> Document:
    """Return the aggregation that finds what a find command would, of live documents."""
    following = handle.following
    assert following is not None  # noqa: S101 (the cursor was made for one)
    if odd := [name for name in _REFUSED if find.get(name)]:
        raise TTLError(
            f"{handle.plain.full_name!r} follows another collection, so it is read by a pipeline, "
            f"which has no {odd[0]}: leave it out, or read with include_expired=True."
        )
    projection = find.get("projection")
    if projection is not None and not isinstance(projection, Mapping):
        projection = dict.fromkeys(projection, 1)
    limit = int(find.get("limit", 0))
    stages = followed.find_pipeline(
        followed.judged(following),
        find.get("filter", {}),
        sort=find.get("sort"),
        skip=int(find.get("skip", 0)),
        limit=limit,
        projection=projection,
    )
    if not handle.gives_plain_documents:
        stages.append(HIDE)
    size = find.get("batchSize")
    if limit and (find.get("singleBatch") or (size is not None and limit <= size)):
        size = limit + 1  # with the last one the server closes the cursor
    rest = {name: value for name, value in find.items() if name not in _TAKEN}
    return {
        "aggregate": find["find"],
        "pipeline": stages,
        "cursor": {} if size is None else {"batchSize": size},
        **rest,
    }

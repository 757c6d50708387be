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

from ttl_odm.errors import TTLError
from ttl_odm.follows.beanie.stages import FOLLOWED, HIDE, find_pipeline, is_over, judged

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.follows.beanie.following import Following

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
    following: Following

    @property
    def _is_shown(self) -> bool:
        return self.handle.gives_plain_documents

    def is_over(self, document: object) -> bool:
        """Say whether the parents of a document have expired by now."""
        clock = self.handle.registry.clock
        if not clock.is_known or not self._is_shown:
            return False
        return is_over(document, self.following.root.policy, clock.at_most())

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


def follow(cursor: Any, handle: Handle, following: Following) -> None:
    """Have a cursor, before it has asked anything, find by a pipeline."""
    cursor._query_class = partial(FollowersQuery, handle, following)


class FollowersQuery(_Query):
    """A find that is sent as a pipeline."""

    def __init__(self, handle: Handle, following: Following, *args: Any) -> None:
        """Take what the driver gives."""
        super().__init__(*args)
        self._handle = handle
        self._following = following
        self._made: Any = None

    def reset(self) -> None:
        """Make the command anew, for another attempt."""
        super().reset()
        self._made = None

    def as_command(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], str]:
        """Return the command."""
        if self._made is None:
            find, database = super().as_command(*args, **kwargs)
            made = self._with_inner(find)
            self._as_command = self._made = made, database
        made_command: tuple[dict[str, Any], str] = self._made
        return made_command

    def update_command(self, cmd: dict[str, Any]) -> None:
        """Take the command as it is encrypted."""
        super().update_command(cmd)
        self._made = self._as_command

    def _with_inner(self, command: Filter) -> Document:
        if isinstance(command.get("explain"), Mapping):
            inner = as_aggregate(command["explain"], self._handle, self._following)
            return {**command, "explain": inner}
        return as_aggregate(command, self._handle, self._following)


def as_aggregate(find: Filter, handle: Handle, following: Following) -> Document:
    """Return the aggregation that finds what a find command would, of live documents."""
    if odd := [name for name in _REFUSED if find.get(name)]:
        raise TTLError(
            f"{handle.plain.full_name!r} follows another collection, so it is read by a pipeline, "
            f"which doesn't support {odd[0]}: leave it out, or read with include_expired=True."
        )
    projection = find.get("projection")
    if projection is not None and not isinstance(projection, Mapping):
        projection = dict.fromkeys(projection, 1)
    limit = int(find.get("limit", 0))
    stages = find_pipeline(
        judged(following),
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

"""Finds of documents that follow others: they are sent as pipelines, and read like finds.

A find's filter can't look into another collection. So when the driver sends the command of a
cursor, it is turned into ``aggregate``: the server judges documents at that moment, and its answer
has the same form. Each document carries the fields that say when its parent expires, so documents
in a cursor's buffer are judged again before they are handed out, as in
`ttl_odm.beanie.gate.cursors`.

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
    from ttl_odm.follows.beanie.follower import Following

Result = TypeVar("Result")

_TRANSLATED: Final = (
    *("find", "filter", "projection", "sort", "skip", "limit", "singleBatch", "batchSize"),
    *("noCursorTimeout", "allowPartialResults", "oplogReplay"),
)
"""Options of a find that become stages or options of a pipeline, or that it doesn't need."""
_REJECTED: Final = ("tailable", "awaitData", "min", "max", "returnKey", "showRecordId")


@dataclass(frozen=True, slots=True)
class FollowedLifetime:
    """How the documents of one cursor are judged: by the parents that they carry.

    It has the methods of `ttl_odm.beanie.gate.cursors.Lifetime`.
    """

    handle: Handle
    following: Following

    def is_over(self, document: object) -> bool:
        """Say whether the parents of a document have expired by now."""
        clock = self.handle.registry.clock
        if not clock.is_known or not self.handle.gives_plain_documents:
            return False
        return is_over(document, self.following.root.policy, clock.at_most())

    def strip(self, document: Result) -> Result:
        """Return the document without its parents."""
        if isinstance(document, MutableMapping):
            document.pop(FOLLOWED, None)
        return document

    def listed(self, documents: Sequence[Document], *, is_judged: bool) -> list[Document]:
        """Return the live documents without their parents.

        `is_judged` says that the server has judged all of them at this moment.
        """
        live = [document for document in documents if is_judged or not self.is_over(document)]
        if live and isinstance(live[0], MutableMapping):
            for document in live:
                document.pop(FOLLOWED, None)
        return live


def follow(cursor: Any, handle: Handle, following: Following) -> None:
    """Make a cursor that hasn't been read yet send a pipeline."""
    cursor._query_class = partial(FollowersQuery, handle, following)


class FollowersQuery(_Query):
    """A find that is sent as a pipeline."""

    def __init__(self, handle: Handle, following: Following, *args: Any) -> None:
        """Take the driver's own arguments."""
        super().__init__(*args)
        self._handle = handle
        self._following = following
        self._aggregate: tuple[Document, str] | None = None

    def reset(self) -> None:
        """Forget the command, so that another attempt gets a new one."""
        super().reset()
        self._aggregate = None

    def as_command(self, *args: Any, **kwargs: Any) -> tuple[Document, str]:
        """Return the command, and the name of its database."""
        if self._aggregate is None:
            find, database = super().as_command(*args, **kwargs)
            self._as_command = self._aggregate = self._translated(find), database
        return self._aggregate

    def update_command(self, cmd: Document) -> None:
        """Take the encrypted command."""
        super().update_command(cmd)
        self._aggregate = self._as_command

    def _translated(self, command: Filter) -> Document:
        """Return the command as an aggregation, also inside ``explain``."""
        if isinstance(command.get("explain"), Mapping):
            inner = _as_aggregate(command["explain"], self._handle, self._following)
            return {**command, "explain": inner}
        return _as_aggregate(command, self._handle, self._following)


def _as_aggregate(find: Filter, handle: Handle, following: Following) -> Document:
    """Return the aggregation for a find command, of live documents only."""
    if unsupported := [name for name in _REJECTED if find.get(name)]:
        raise TTLError(
            f"{handle.plain.full_name!r} follows another collection, so it is read by a pipeline, "
            f"which doesn't support {unsupported[0]}: leave it out, or read with "
            "include_expired=True."
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
        size = limit + 1  # so the server closes the cursor with the last document
    rest = {name: value for name, value in find.items() if name not in _TRANSLATED}
    return {
        "aggregate": find["find"],
        "pipeline": stages,
        "cursor": {} if size is None else {"batchSize": size},
        **rest,
    }

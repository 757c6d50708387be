"""One collection, as the gate sees it: the plain one, its policy, its stamps, the clock.

The modules that take a `Handle` process answers and send writes. The two options of ttl_odm on
single operations are removed here, before a driver sees them:

- ``include_expired=True`` on reads: `Event.find(..., include_expired=True)`;
- ``keep_last_modified=True`` on writes whose keyword arguments reach the driver, and
  `keep_last_modified` around those whose don't (bulk writers, `Document.replace`).

This module must not know Beanie's documents, nor which driver it is.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from bson.codec_options import DatetimeConversion, TypeRegistry
from pymongo import WriteConcern
from pymongo.errors import OperationFailure

from ttl_odm.beanie.gate import views
from ttl_odm.beanie.policy.bindings import StageJudge, forgotten_class
from ttl_odm.beanie.policy.commands import indexes_of
from ttl_odm.beanie.policy.predicate import range_of_live
from ttl_odm.beanie.policy.ttl_indexes import is_ours
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.pipelines import live_pipeline, names_in
from ttl_odm.beanie.rewrite.stamps import empty_timestamps, stamping_of
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection as Collection_
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from ttl_odm.beanie.drivers import Backend, Collection, Document, Filter
    from ttl_odm.beanie.policy.bindings import Binding, Entry, Judge, Registry
    from ttl_odm.beanie.policy.sources import DefaultSource
    from ttl_odm.beanie.rewrite.stamps import Stamping
    from ttl_odm.core.policy import Policy

_MARGIN: Final = timedelta(minutes=5)
"""How far the server's clock may be behind the driver's estimate, as it was set back or another
member of the replica set answered. Within this margin only the expression decides."""

_UNLISTED: Final = {13, 166}
"""Unauthorized and CommandNotSupportedOnView: the codes for indexes that can't be listed."""

_keeping: ContextVar[bool] = ContextVar("ttl_odm_keep_last_modified", default=False)


@contextmanager
def keep_last_modified() -> Iterator[None]:
    """Keep ``_ts`` unchanged by the writes inside, for view counters and background fix-ups.

    It applies to the task that enters it, and to the tasks started inside.
    """
    token = _keeping.set(True)
    try:
        yield
    finally:
        _keeping.reset(token)


def pop_keep(options: Document) -> bool:
    """Remove ``keep_last_modified`` from a write's options, and return whether it applies."""
    keep: bool | None = options.pop("keep_last_modified", None)
    return _keeping.get() if keep is None else keep


def pop_expired(options: Document) -> bool:
    """Remove ``include_expired`` from a read's options, and return its value."""
    return bool(options.pop("include_expired", False))


def is_collated(options: Filter) -> bool:
    """Return whether an operation has its own collation."""
    return options.get("collation") is not None


class Handle:
    """One collection, and what the gate needs to read and write it."""

    def __init__(
        self,
        plain: Collection,
        registry: Registry,
        database: str,
        *,
        backend: Backend,
        guard: bool = False,
    ) -> None:
        """Store the arguments; the policy is looked up at each operation."""
        self.plain = plain
        self.registry = registry
        self.database = database
        self.backend: Backend = backend
        # With a guard: the collection and all that its pipelines have named so far.
        self._reached = {(database, plain.name)} if guard else None
        options = plain.codec_options
        self.gives_plain_documents = (
            issubclass(options.document_class, MutableMapping)
            and options.datetime_conversion is DatetimeConversion.DATETIME
            and options.type_registry == TypeRegistry()
        )

    @property
    def binding(self) -> Binding | None:
        """The collection's policy, None if it has none."""
        return self.registry.find(self.database, self.plain.name)

    @property
    def entry(self) -> Entry | None:
        """The collection's policy or rule, None if it has neither."""
        return self.registry.entry(self.database, self.plain.name)

    @property
    def is_gated(self) -> bool:
        """Whether its documents expire, and ttl_odm enforces that."""
        entry = self.entry
        return entry is not None and not entry.enforced_by_others

    @property
    def policy(self) -> Policy | None:
        """The policy at this moment, None if ttl_odm doesn't enforce one."""
        binding = self.binding
        return None if binding is None else binding.enforced

    def scopes_in(self, filter: Filter, *, collated: bool) -> tuple[object, ...] | None:
        """Return the few scopes whose documents a filter may match; None if it may match others.

        Arrays have no scope. Under a collation an equality may match other strings.
        """
        binding = self.binding
        if binding is None or binding.source.is_known or collated:
            return None
        scoping = binding.source.scoping
        if scoping is None or not binding.source.scopes_are_exact:
            return None
        return filters.values_of(filter, scoping.field)

    def policy_of(self, scopes: Collection_[object] | None) -> Policy | None:
        """Return the policy; for a few scopes, without the defaults of others."""
        binding = self.binding
        if scopes is None or binding is None or binding.enforced_by_others:
            return self.policy
        return binding.source.policy_of(scopes)

    def policy_over(self, documents: Sequence[Filter]) -> Policy | None:
        """Return the policy without defaults that none of these documents has."""
        binding = self.binding
        field = None if binding is None or binding.source.is_known else binding.scope
        if field is None or "." in field:
            return self.policy
        values = [document.get(field) for document in documents]
        scopes = set(values) if {*map(type, values)} <= filters.PLAIN_OR_NONE else None
        are_few = scopes is not None and len(scopes) <= filters.FEW_VALUES
        return self.policy_of(scopes if are_few else None)

    @property
    def outline(self) -> Policy | None:
        """The policy with -1 for a default that isn't in code."""
        binding = self.binding
        return None if binding is None or binding.enforced_by_others else binding.outline

    @property
    def stamping(self) -> Stamping | None:
        """How writes are stamped at this moment, None if they are not."""
        return _stamping(self.binding)

    @property
    def acknowledged(self) -> Collection:
        """The plain collection with a write concern that reports conflicts."""
        if not self.is_gated or self.plain.write_concern.acknowledged:
            return self.plain
        return self.plain.with_options(write_concern=WriteConcern(w=1))

    def policy_named(self, database: str | None, collection: str) -> Policy | None:
        """Return the policy of any collection of the client; see `pipelines.Policies`."""
        binding = self.registry.find(*self._reach(database, collection))
        return None if binding is None else binding.enforced

    def judge_named(self, database: str | None, collection: str) -> Judge:
        """Return the policy or the stages that judge documents of any collection of the client."""
        entry = self.registry.entry(*self._reach(database, collection))
        return None if entry is None else entry.judged(self.database)

    def _reach(self, database: str | None, collection: str) -> tuple[str, str]:
        place = database or self.database, collection
        if self._reached is not None:
            self._reached.add(place)
        return place

    def stamping_named(self, database: str | None, collection: str) -> Stamping | None:
        """Return how writes to any collection of the client are stamped."""
        return _stamping(self.registry.find(database or self.database, collection))

    def unread_defaults(self, pipeline: object = ()) -> list[tuple[DefaultSource, Collection]]:
        """Return the defaults that have to be read before an operation, and their collections.

        They belong to this collection and to those that a pipeline reaches.
        """
        if not self.registry.has_unknown:  # as in most applications
            return []
        if not pipeline:
            binding = self.binding
            if binding is None or binding.source.is_known:
                return []
            return [(binding.source, self.plain)]
        places = {(self.database, self.plain.name)}
        places |= {(database or self.database, name) for database, name in names_in(pipeline)}
        client = self.plain.database.client
        return [
            (binding.source, client[database][name])
            for database, name in sorted(places)
            if (binding := self.registry.find(database, name)) is not None
            and not binding.source.is_known
        ]

    def unread_view_defaults(self, command: object) -> list[tuple[DefaultSource, Collection]]:
        """Return these defaults for the view that a database command creates, if it creates one."""
        pipeline = views.read_by(command) if self.registry.has_unknown else []
        return self.unread_defaults(pipeline) if pipeline else []

    async def read_defaults(self, pipeline: object = ()) -> None:
        """Read the defaults that an operation needs and that aren't in code."""
        for source, collection in self.unread_defaults(pipeline):
            await source.see(collection)

    async def read_view_defaults(self, command: object) -> None:
        """Read the defaults that a database command needs."""
        for source, collection in self.unread_view_defaults(command):
            await source.see(collection)

    def check_complete(self, method: str, pipeline: object = ()) -> None:
        """Reject a read that is built before a default can be read, if it needs one."""
        for source, collection in self.unread_defaults(pipeline):
            source.check_complete(method, collection.full_name)

    async def now(self) -> datetime:
        """Return an instant that the server has reached."""
        await self.registry.clock.refresh(self.plain.database)
        return self.registry.clock.reached()

    async def now_to_stamp(self, update: object) -> datetime | None:
        """Return an instant that the server has reached, None if the server can stamp by itself."""
        stamping = self.stamping
        if stamping is None or not (stamping.needs_now or empty_timestamps(update)):
            return None
        return await self.now()

    async def ready(self) -> None:
        """Prepare for a read: read the server's clock, or correct the definition of a view."""
        if self.is_gated:
            await self.registry.clock.refresh(self.plain.database)
        else:
            await views.ensure(self.plain, self.registry, self, self.read_defaults, self.backend)
        await self.check_reach()

    async def check_reach(self) -> None:
        """With a guard, reject collections without a policy whose documents expire."""
        if self._reached is None:
            return
        known = self.registry.without_ttl
        for database, name in self._reached - known:
            if self.registry.entry(database, name) is not None:
                continue
            why = await sign_of_ttl(self.plain.database.client[database][name])
            if why is not None:
                raise TTLConfigurationError(
                    f"{f'{database}.{name}'!r} is read and written without its ttl: {why}. Pass "
                    "its class to init_beanie(document_models=[...])."
                )
            known.add((database, name))

    def filter_for(self, filter: object, *, expired: bool, collated: bool = True) -> Filter:
        """Return the filter for a read, from a filter, an ``_id`` or None.

        `collated` says whether the read may have a collation.
        """
        by_key: Filter = {} if filter is None else {"_id": filter}
        asked: Filter = filter if isinstance(filter, Mapping) else by_key
        if expired:
            return asked
        scopes = self.scopes_in(asked, collated=collated)
        return filters.live_filter(asked, self.policy_of(scopes))

    def filter_to_write(self, filter: Filter, *, collated: bool = True) -> Filter:
        """Return the filter for a write; `collated` says whether it may have a collation.

        A write to a time series takes no expression, only fields that many measurements share. That
        is safe: no write there makes an expired measurement live.
        """
        binding, policy = self.binding, self.policy_of(self.scopes_in(filter, collated=collated))
        is_series = binding is not None and policy is not None and binding.is_time_series
        live = filters.live_filter(filter, None if is_series else policy)
        if binding is not None and binding.backend == "documentdb" and "$expr" not in live:
            # documentdb rejects $$NOW in an update of many whose filter has no $expr.
            return {**live, "$expr": True}
        return live

    def ranged(self, live: Filter, names: Iterable[str]) -> Filter:
        """Return a filter that matches the same live documents, and allows a range of an index.

        The range is added only if the query filters or sorts by the date of expiry (`names` are the
        fields it sorts by), so that it may use an index on that date anyway. The range alone would
        make MongoDB choose such an index and read nearly all of it.
        """
        policy, clock = self.policy, self.registry.clock
        if policy is None or isinstance(policy, TTL) or not clock.is_known:
            return live
        condition = range_of_live(policy, clock.reached() - _MARGIN)
        if condition is None or policy.field not in (*map(str, names), *map(str, live)):
            return live
        return filters.within(live, condition)

    def pipeline_for(
        self, pipeline: Sequence[Filter], *, expired: bool, collated: bool = True
    ) -> Sequence[Filter]:
        """Return the pipeline for a read; `collated` says whether it may have a collation."""
        if expired or not isinstance(pipeline, Sequence):
            return pipeline
        entry = self.entry
        judge = None if entry is None else entry.judged(self.database)
        first = pipeline[0].get("$match") if pipeline else None
        if isinstance(judge, TTL) and isinstance(first, Mapping):
            judge = self.policy_of(self.scopes_in(first, collated=collated))
        stages = live_pipeline(pipeline, judge, self)
        if judge is None or isinstance(judge, StageJudge):
            return stages
        if not stages or "$match" not in stages[0]:
            return stages
        after = next((stage for stage in stages if "$match" not in stage), {})
        return [{"$match": self.ranged(stages[0]["$match"], after.get("$sort", ()))}, *stages[1:]]

    def command_for(self, command: Any) -> Any:
        """Return a database command with a view's pipeline changed to see live documents only."""
        if not isinstance(command, Mapping) or "viewOn" not in command:
            return command
        source = self.judge_named(None, command["viewOn"])
        return {**command, "pipeline": live_pipeline(command.get("pipeline", []), source, self)}


def _stamping(binding: Binding | None) -> Stamping | None:
    return None if binding is None else stamping_of(binding.outline, binding.backend)


async def sign_of_ttl(collection: Collection) -> str | None:
    """Return why the documents of a collection without a policy seem to expire, None if they don't.

    The signs are a class in this process that Beanie doesn't know, and an index of ours. No gate
    protects such a collection: reads show expired documents, and writes are not stamped.
    """
    model = forgotten_class(collection.name)
    if model is not None:
        return f"{model.__module__}.{model.__qualname__} was not given to init_beanie()"
    try:
        names = [index["name"] for index in await indexes_of(collection)]
    except OperationFailure as error:
        if error.code in _UNLISTED:
            return None
        raise
    ours = ", ".join(sorted(filter(is_ours, names)))
    if not ours:
        return None
    return f"no document class in this process declares a ttl for it, but it has {ours}"

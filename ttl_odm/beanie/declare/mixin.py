"""`TTLMixin`: the fields and methods of documents with a lifetime."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Optional, TypeAlias, TypeVar, overload

from beanie.odm.documents import DocumentWithSoftDelete
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core.core_schema import CoreSchema, no_info_plain_validator_function

from ttl_odm.beanie.declare import declaration
from ttl_odm.beanie.objects import document_writes, lifetime
from ttl_odm.beanie.objects.cache import TTLFindMany, TTLFindOne
from ttl_odm.beanie.objects.copies import keeps_state, remember
from ttl_odm.core import expiry
from ttl_odm.core.extension import (
    DefaultExtension,  # noqa: TC001 - pydantic reads the annotations
    Extension,  # noqa: TC001 - as above
)
from ttl_odm.core.policy import Policy  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beanie import Document as _Base
    from pymongo.results import DeleteResult, InsertManyResult
    from typing_extensions import Self

    from ttl_odm.beanie.drivers import Collection, Database, Session
    from ttl_odm.core.lifetime import OnlyIf

    _Projection = TypeVar("_Projection", bound=BaseModel)
    _Criterion: TypeAlias = Mapping[Any, object] | bool
else:
    # Not a Document: Beanie wants one parent of each class to be one, and that is the user's.
    _Base = BaseModel


_AWARE, _NAIVE = datetime(1970, 1, 1, tzinfo=timezone.utc), datetime(1970, 1, 1)  # noqa: DTZ001
_any_instant = TypeAdapter(datetime)


# Pydantic's own mark of JSON is lost in Document.__init__, which gets parsed values.
_reads_json: ContextVar[bool] = ContextVar("ttl_odm_reads_json", default=False)


def _as_date(value: object) -> datetime | None:
    """Return a stored ``_ts`` as an aware datetime; None for any other type, as in the predicate.

    Text is read as an instant only if it comes from JSON.
    """
    if isinstance(value, str) and _reads_json.get() and "T" in value:
        with suppress(ValidationError):
            value = _any_instant.validate_python(value)
    if not isinstance(value, datetime):
        return None
    # Runs for each document that is read: replace(tzinfo=...) would take four times as long.
    return _AWARE + (value - _NAIVE) if value.tzinfo is None else value


class _AsDate:
    """Makes pydantic call `_as_date` alone; a validator around it would double the cost."""

    @staticmethod
    def __get_pydantic_core_schema__(source: object, handler: object) -> CoreSchema:
        return no_info_plain_validator_function(_as_date)


# Inside Optional, so that lazy parsing uses it too, which sees only the type of a field.
_LastModified = Annotated[
    datetime, _AsDate, WithJsonSchema({"type": "string", "format": "date-time"})
]
_Lenient = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "null"}]})]


class TTLMixin(_Base):
    """Gives documents a lifetime: ``class Event(TTLMixin, Document): __ttl__ = 3600``.

    ``__ttl__`` (or ``Settings.ttl``) is the collection's default ttl: seconds after the last
    modification, -1 (documents live forever unless they have their own ttl), None (TTL is off), a
    policy, or `Stored` if the database stores it. You can change it while the application runs,
    but not whether the database stores it. An extension may instead give the documents a parent
    with which they expire; then they have neither of the fields below.

    ``__ttl_purge__`` (or ``Settings.ttl_purge``) is who deletes expired documents: "native"
    (MongoDB itself) or "sweeper". With the sweeper, ``__ttl_archive__`` is where they are kept (an
    `Archive` or an object with ``write()``), ``__ttl_on_purged__`` is the hook to call, and
    ``__ttl_sweep__`` is how they are found: by an "index" or a "scan".

    Attributes:
        last_modified: Field ``_ts``; an aware UTC datetime that the server's clock sets on every
            write, None before the first write.
        ttl: The document's own ttl in seconds, -1 for never, None to inherit.
    """

    __ttl__: ClassVar[int | float | timedelta | Policy | DefaultExtension | Extension | None]
    __ttl_purge__: ClassVar[str]

    last_modified: Optional[_LastModified] = Field(default=None, alias="_ts")  # noqa: UP045
    ttl: _Lenient = Field(default=None, alias="ttl")  # an alias that no generator renames

    _find_one_query_class: ClassVar[type] = TTLFindOne
    _find_many_query_class: ClassVar[type] = TTLFindMany

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        declaration.check(cls)
        declaration.drop_unused_fields(cls, TTLMixin)
        if issubclass(cls, DocumentWithSoftDelete):  # it bypasses our `delete`
            cls.hard_delete = document_writes.run_as(document_writes.delete, cls.hard_delete)  # type: ignore[method-assign]

    @classmethod
    def set_database(cls, database: Database) -> None:
        """Check the class before Beanie makes its collection in this database."""
        declaration.check_collection(cls)
        super().set_database(database)  # type: ignore[no-untyped-call]

    @classmethod
    @declaration.enforcing
    def set_collection(cls, collection: Collection) -> None:
        """Gate the collection that Beanie gives, and put the policy on it."""
        declaration.check_fields(cls, TTLMixin)
        super().set_collection(declaration.bind(cls, collection))  # type: ignore[no-untyped-call]

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> Self:
        """Read a document from JSON, where ``_ts`` is text; see pydantic's own."""
        token = _reads_json.set(True)
        try:
            document: Self = super().model_validate_json(*args, **kwargs)
        finally:
            _reads_json.reset(token)
        return document

    if TYPE_CHECKING:
        # Beanie's own, with the classes of queries that have `touch`.

        @overload
        @classmethod
        def find_one(
            cls, *args: _Criterion, projection_model: None = None, **options: object
        ) -> TTLFindOne[Self]: ...
        @overload
        @classmethod
        def find_one(
            cls,
            *args: _Criterion,
            projection_model: type[_Projection],
            **options: object,
        ) -> TTLFindOne[_Projection]: ...
        @classmethod
        def find_one(cls, *args: object, **options: object) -> object: ...  # noqa: D102

        @overload
        @classmethod
        def find(
            cls, *args: _Criterion, projection_model: None = None, **options: object
        ) -> TTLFindMany[Self]: ...
        @overload
        @classmethod
        def find(
            cls,
            *args: _Criterion,
            projection_model: type[_Projection],
            **options: object,
        ) -> TTLFindMany[_Projection]: ...
        @classmethod
        def find(cls, *args: object, **options: object) -> object: ...  # noqa: D102

    # The lifetime

    @property
    def expires_at(self) -> datetime | None:
        """The instant at which the document expires (aware, UTC); None for never.

        For a document that expires with its parent, it is the end of the parent, if that was
        fetched by a link; otherwise ask the database: `await ttl_odm.beanie.expires_at(document)`.
        """
        return lifetime.end_of(self)

    @property
    def is_expired(self) -> bool:
        """Whether the document has expired, by the server's clock.

        The server's clock is estimated with an upper bound, so the answer may already be True
        shortly before the instant of expiry (at most one round trip). Reads and writes always use
        the server's own clock.
        """
        end = lifetime.end_of(self)  # not self.expires_at: a user's field may have that name
        return end is not None and expiry.is_expired(end, lifetime.latest_now(self))

    @property
    def time_left(self) -> timedelta | None:
        """How long the document still lives; None for forever, never negative."""
        end = lifetime.end_of(self)
        return None if end is None else expiry.remaining(end, lifetime.latest_now(self))

    async def touch(
        self,
        *,
        at_most_every: float | timedelta | None = None,
        only_if: OnlyIf | None = None,
        session: Session = None,
    ) -> bool:
        """Restart the document's lifetime; see `ttl_odm.beanie.touch`."""
        return await lifetime.touch(
            self, at_most_every=at_most_every, only_if=only_if, session=session
        )

    async def expire_in(
        self, life: float | timedelta, *, only_if: OnlyIf | None = None, session: Session = None
    ) -> bool:
        """Let the document live for this long from now; see `ttl_odm.beanie.expire_in`."""
        return await lifetime.expire_in(self, life, only_if=only_if, session=session)

    async def expire_at(
        self, instant: datetime, *, only_if: OnlyIf | None = None, session: Session = None
    ) -> bool:
        """Let the document expire at exactly this instant; see `ttl_odm.beanie.expire_at`."""
        return await lifetime.expire_at(self, instant, only_if=only_if, session=session)

    async def persist(self, *, session: Session = None) -> None:
        """Let the document live forever; see `ttl_odm.beanie.persist`."""
        await lifetime.persist(self, session=session)

    async def inherit_ttl(self, *, session: Session = None) -> None:
        """Remove the document's own ttl; see `ttl_odm.beanie.inherit_ttl`."""
        await lifetime.inherit_ttl(self, session=session)

    # Beanie's writes

    def _save_state(self) -> None:
        # Runs for each document that is read. Beanie's own method takes longer to see that there is
        # nothing to save than `remember` takes altogether.
        if keeps_state(type(self)):
            super()._save_state()
        remember(self)

    async def insert(self, *args: object, **kwargs: object) -> Self:
        """Insert the document; see Beanie's own method."""
        return await document_writes.insert(self, super().insert, *args, **kwargs)

    @classmethod
    async def insert_one(cls, document: Any, *args: object, **kwargs: object) -> Any:
        """Insert a document; see Beanie's own method."""
        return await document_writes.insert_one(super().insert_one, document, *args, **kwargs)

    @classmethod
    async def insert_many(cls, documents: Any, *args: object, **kwargs: object) -> InsertManyResult:
        """Insert documents; see Beanie's own method."""
        return await document_writes.insert_many(super().insert_many, documents, *args, **kwargs)

    async def update(self, *args: object, **kwargs: object) -> Self:
        """Update the document, as Beanie does. `ExpiredError` if it has expired.

        `save()` calls this; it inserts a document that was never stored, or was deleted.
        """
        return await document_writes.write(self, super().update, *args, **kwargs)

    async def replace(self, *args: object, **kwargs: object) -> Self:
        """Replace the stored document, as Beanie does. `ExpiredError` if it has expired."""
        return await document_writes.replace(self, super().replace, *args, **kwargs)

    async def delete(self, *args: object, **kwargs: object) -> DeleteResult | None:
        """Delete the document, as Beanie does. `ExpiredError` if it has expired.

        `DeleteRules.DELETE_LINKS` raises no such error and continues, since an expired document is
        already gone.
        """
        return await document_writes.delete(self, super().delete, *args, **kwargs)

    async def sync(self, *args: object, **kwargs: object) -> None:
        """Reload the document, as Beanie does. `ExpiredError` if it has expired."""
        return await document_writes.write(self, super().sync, *args, **kwargs)

"""`TTLMixin`: the two contract columns, and methods for a row's lifetime."""

from __future__ import annotations

from datetime import datetime, timedelta  # noqa: TC003 - mappers may read annotations
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import Column, ColumnElement, FetchedValue
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    DeclarativeBaseNoMeta,
    Mapped,
    MappedAsDataclass,
    declared_attr,
    mapped_column,
    validates,
)

from ttl_odm.core.class_attributes import annotations_of
from ttl_odm.core.extension import DefaultExtension, Extension, Layout
from ttl_odm.core.policy import TTL, Policy, as_policy
from ttl_odm.core.values import row_ttl
from ttl_odm.sqlalchemy.gate import functions
from ttl_odm.sqlalchemy.objects import lifetime
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import LastModified, Seconds

_BASES: Final = frozenset({DeclarativeBase, DeclarativeBaseNoMeta})


def last_modified_column() -> Column[datetime]:
    """Return a new column ``_ts``."""
    return Column(
        "_ts",
        LastModified(),
        nullable=False,
        server_default=Stamp(),
        server_onupdate=FetchedValue(),
    )


def ttl_column(owner: type) -> Column[int]:
    """Return a new column ``ttl`` for a class."""
    return Column("ttl", Seconds(f"{owner.__name__}.ttl"))


class _Absent:
    """An attribute that a class doesn't have, although its mixin does."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: Any) -> _Absent:
        if "__mapper__" not in vars(owner):  # a subclass that is about to be mapped inherits it
            return self
        raise AttributeError(
            f"{owner.__name__} has no {self._name}: its policy is {owner.__ttl__!r}"
        )

    def __set__(self, instance: object, value: object) -> None:
        self.__get__(instance, type(instance))


class TTLMixin:
    """Gives a model a lifetime: ``class WebSession(TTLMixin, Base): __ttl__ = 3600``.

    ``__ttl__`` is the default ttl of the table: seconds after the last modification (``int``,
    ``timedelta``), -1 (rows live forever unless they have their own ttl), or None (TTL is off, and
    rows' own ttls are ignored). You can change it while the application runs; every row that
    inherits it follows at once. The rules are those of Azure Cosmos DB's time to live.

    Further attributes control what happens to expired rows. ``__ttl_purge__`` is how they are
    deleted: ``"delete"``, or through the ``"orm"``. ``__ttl_archive__`` is where they are kept: an
    `Archive` or an object with ``write()``. ``__ttl_on_purged__`` is the hook to call.
    ``__ttl_sweep__`` is how they are found: by an ``"index"`` or a ``"scan"``.
    ``__ttl_partition__`` partitions the table by time, see `Partitions`.

    Attributes:
        last_modified: Column ``_ts``; an aware UTC datetime that the database's clock sets on
            every write.
        ttl: Column ``ttl``; the row's own ttl in seconds, -1 for never, None to inherit. In a
            `MappedAsDataclass` it is a dataclass field; in a decorated class it is only an
            attribute.
    """

    __ttl__: ClassVar[int | float | timedelta | Policy | DefaultExtension | Extension | None] = None
    __ttl_sweep__: ClassVar[str] = "index"
    __ttl_purge__: ClassVar[str] = "delete"
    __ttl_archive__: ClassVar[Any] = None
    __ttl_on_purged__: ClassVar[Any] = None
    __ttl_partition__: ClassVar[Layout | None] = None

    if TYPE_CHECKING:
        last_modified: Mapped[datetime]
        ttl: Mapped[int | None]
    else:
        # Without annotations, which SQLAlchemy would take for dataclass fields: it would reject
        # the mixin on a MappedAsDataclass.

        # A policy over other columns needs neither of these.

        @declared_attr
        def last_modified(cls):  # noqa: ANN201, N805 - what declared_attr passes
            """When the row was last written, by the database's clock (aware, UTC)."""
            return last_modified_column() if goes_by(cls, "_ts") else _Absent("last_modified")

        @declared_attr
        def ttl(cls):  # noqa: ANN201, N805 - what declared_attr passes
            """The row's own ttl in seconds; -1 is never, None inherits the default."""
            return ttl_column(cls) if goes_by(cls, "ttl") else _Absent("ttl")

    def __init_subclass__(cls, **arguments: object) -> None:
        # SQLAlchemy takes the fields of a dataclass from its own annotations alone.
        if issubclass(cls, MappedAsDataclass) and "ttl" not in vars(cls) and _is_root(cls):
            cls.__annotations__ = {**annotations_of(cls), "ttl": Mapped[int | None]}
            column_type = ttl_column(cls).type
            cls.ttl = mapped_column(
                "ttl", column_type, default=None, kw_only=True, repr=False, compare=False
            )
        super().__init_subclass__(**arguments)

    @validates("ttl")
    def _validate_ttl(self, key: str, value: Any) -> Any:
        if isinstance(value, ColumnElement):
            return value
        return row_ttl(value, where=f"{type(self).__name__}.{key}")

    @hybrid_property
    def expires_at(self) -> datetime | None:
        """The instant at which the row expires (aware, UTC); None for never."""
        return lifetime.end_of(self)

    @expires_at.inplace.expression
    @classmethod
    def _expires_at_in_sql(cls) -> ColumnElement[datetime | None]:
        return functions.expires_at(cls)

    @hybrid_property
    def is_expired(self) -> bool:
        """Whether the row has expired, by the database's clock.

        For a row in memory the clock is known from above: shortly before the instant of expiry
        (one round trip at most) the answer may already be True. The database itself decides on
        every read and write.
        """
        return lifetime.is_expired(self)

    @is_expired.inplace.expression
    @classmethod
    def _is_expired_in_sql(cls) -> ColumnElement[bool]:
        return functions.expired(cls)

    @property
    def time_left(self) -> timedelta | None:
        """How long the row still lives, by the database's clock; None means forever."""
        return lifetime.time_left(self)

    # As functions, these work for rows of any class with a policy.
    touch = lifetime.touch
    persist = lifetime.persist
    inherit_ttl = lifetime.inherit_ttl
    expire_in = lifetime.expire_in
    expire_at = lifetime.expire_at


def _is_root(cls: type[TTLMixin]) -> bool:
    """Return whether a class is about to be mapped to its own table, with a ttl for each row."""
    is_base = vars(cls).get("__abstract__") or _BASES.intersection(cls.__bases__)
    inherits = any("__mapper__" in vars(base) for base in cls.__mro__)
    return hasattr(cls, "registry") and not (is_base or inherits) and goes_by(cls, "ttl")


def goes_by(cls: type[TTLMixin], column: str) -> bool:
    """Return whether the policy of a class uses a column of the contract."""
    if isinstance(cls.__ttl__, Extension):
        return False
    policy = as_policy(cls.__ttl__, where=f"{cls.__name__}.__ttl__")
    return isinstance(policy, TTL) and column in (policy.last_modified, policy.override)

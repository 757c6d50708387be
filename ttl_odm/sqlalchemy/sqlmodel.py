"""`TTLModel`: the two contract columns as SQLModel fields.

`TTLMixin` alone gives a SQLModel table its columns, but pydantic refuses to set an attribute
that isn't a field, and silently drops it from ``Hero(ttl=5)``. So they are fields here.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import FetchedValue
from sqlalchemy.orm.attributes import set_attribute
from sqlmodel import Field, SQLModel

from ttl_odm.sqlalchemy.declare.mixin import TTLMixin
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import LastModified, Seconds

_LIFETIME: Final = {"last_modified", "ttl"}


class _Absent:
    """An attribute that a class doesn't have, although its bases do."""

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__} has no such attribute")


class _Helpers(TTLMixin):
    """The mixin without its columns.

    Pydantic asks every base for an attribute with the name of a field, and would take the
    mixin's declarations for default values.
    """

    if not TYPE_CHECKING:
        last_modified = _Absent()
        ttl = _Absent()


class TTLModel(_Helpers, SQLModel):
    """Gives a SQLModel table a lifetime: ``class Hero(TTLModel, table=True): __ttl__ = 3600``.

    Everything that `TTLMixin` offers works as on any other model.
    """

    # SQLModel annotates its columns with plain types, not with Mapped[].
    last_modified: datetime | None = Field(  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
        default=None,
        nullable=False,
        sa_type=LastModified,
        sa_column_kwargs={
            "name": "_ts",
            "server_default": Stamp(),
            "server_onupdate": FetchedValue(),
        },
    )
    ttl: int | None = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default=None, sa_type=Seconds
    )

    def __setattr__(self, name: str, value: Any) -> None:
        # Pydantic would overwrite the value that TTLMixin checked and converted (a timedelta)
        # with the original one, and may reject the SQL that touch() assigns.
        if name in _LIFETIME and self.model_config.get("table"):
            set_attribute(self, name, value)
            self.model_fields_set.add(name)
        else:
            super().__setattr__(name, value)

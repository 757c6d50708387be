"""The values of a statement that may be others each time it runs, though its SQL is the same.

They are bound, so that SQLAlchemy's statement cache keeps one entry whatever happens to them: the
default ttl as its class declares it at that moment (`SecondsParameter`), and whether ``_ts`` stays
as it is (`KeepFlag`). What one execution alone asks for is passed to it as parameters of these
names, see `overruled` and `ttl_odm.sqlalchemy.gate.context`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import BigInteger, BindParameter, Boolean, ColumnElement, case, or_

from ttl_odm.sqlalchemy.policy.options import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.time.clock import OFF

if TYPE_CHECKING:
    from collections.abc import Collection

    from ttl_odm.sqlalchemy.policy.binding import Binding, SourceColumns
    from ttl_odm.sqlalchemy.policy.defaults import DefaultTTL

base_row_written: ContextVar[bool] = ContextVar("ttl_odm_base_row_written", default=False)
"""True while a flush writes sub-tables of rows that it has just written at the root.

Their lifetime was judged and set there; the flush may have let them expire.
"""

BASE_ROW_WRITTEN: Final = "ttl_odm_base_row_written"
"""Stands beside the execution options as what overrules the spans of a write."""


Part = Literal["inherited_age", "inherited_life", "own_slack", "own_life", "max_age", "max_life"]
"""A field of `LifetimeSeconds`."""


class SecondsParameter(BindParameter[Any]):
    """Seconds that hang on a default ttl, asked for at each execution.

    Args:
        default: the default.
        part: what of its `LifetimeSeconds`.
        overruled_by: what makes it `OFF` for one execution.
    """

    inherit_cache = True

    def __init__(self, default: DefaultTTL, part: Part, overruled_by: str) -> None:
        """Bind no value: it is the default's."""
        self._default = default
        self._part = part
        self.overruled_by = overruled_by
        super().__init__(part, None, unique=True, type_=BigInteger())

    @property
    def value(self) -> Any:
        """The seconds at this moment; SQLAlchemy reads them whenever the statement runs."""
        default = self._default
        # All that a read costs beside its SQL is here: hence no call while nothing has changed.
        if getattr(default.owner, "__ttl__", None) is not default.declared:
            default.read()
        return getattr(default.lives, self._part)

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


class KeepFlag(BindParameter[Any]):
    """True when the statement runs with ``keep_last_modified``."""

    inherit_cache = True
    overruled_by = KEEP_LAST_MODIFIED

    def __init__(self) -> None:
        """Bind False, which is nearly always so."""
        super().__init__("ttl_keep", False, unique=True, type_=Boolean())  # noqa: FBT003 (SQLAlchemy's signature)


def overruled(compiled: Any, asked: Collection[str]) -> dict[str, object]:
    """The parameters that give one execution what it asks for.

    Args:
        compiled: the statement.
        asked: execution options, or `BASE_ROW_WRITTEN`.
    """
    return {
        name: isinstance(parameter, KeepFlag) or OFF
        for parameter, name in compiled.bind_names.items()
        if getattr(parameter, "overruled_by", None) in asked
    }


def span_of(
    binding: Binding, columns: SourceColumns, part: Part, overruled_by: str
) -> ColumnElement[Any]:
    """Seconds that depend on the default which a row inherits.

    Args:
        binding: the table's policy.
        columns: the row, as the statement spells it.
        part: what of the default's `LifetimeSeconds`.
        overruled_by: what makes it `OFF` for one execution.
    """
    otherwise = SecondsParameter(binding.default, part, overruled_by)
    # An abstract class has no rows of its own.
    variants = [variant for variant in binding.variants if variant.identities]
    discriminator = columns.discriminator
    if discriminator is None or not variants:
        return otherwise
    return case(
        *(
            (
                or_(*(discriminator == identity for identity in variant.identities)),
                SecondsParameter(variant.default, part, overruled_by),
            )
            for variant in variants
        ),
        else_=otherwise,
    )

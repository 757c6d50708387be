"""A default ttl that an application keeps among its settings: ``__ttl__ = FromSetting("...")``.

The application has a table ``settings`` and a page to edit it. A change there takes effect with the
next statement of every process. This module says what a model declares; `setting.sqlalchemy` has
what SQLAlchemy's adapter needs, and is imported when the first model declares it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttl_odm.core.extension import DefaultExtension
from ttl_odm.errors import TTLConfigurationError


@dataclass(frozen=True)
class FromSetting(DefaultExtension):
    """A default ttl from the row of ``settings`` with this name, in seconds.

    Where there is no such row, TTL is off: no row expires.
    """

    name: str
    by: ClassVar[None] = None

    @property
    def shape(self) -> FromSetting:
        """The declaration itself: the name is in the SQL."""
        return self

    def by_column(self, name: str) -> FromSetting:  # noqa: ARG002 (there is no `by`)
        """The declaration itself."""
        return self

    def of_whole_table(self, declared: str, owner: str) -> TTLConfigurationError:
        """A setting is for a whole table."""
        return TTLConfigurationError(f"{declared}: declare {self!r} on {owner} only.")

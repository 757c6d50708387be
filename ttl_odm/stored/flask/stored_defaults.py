"""The stored defaults of an application, which its JSON and its page read and change.

This module must not know how a request is made or answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from sqlalchemy import Engine

from ttl_odm.core.values import short_repr
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.approval import parse_stored
from ttl_odm.stored.scope_columns import is_encodable
from ttl_odm.stored.sqlalchemy.changes import policy_changes, stored_policies
from ttl_odm.stored.sqlalchemy.previews import approve_policy, preview_policy
from ttl_odm.stored.sqlalchemy.stored_default import StoredDefault, stored_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ttl_odm.stored import StoredTTL
    from ttl_odm.stored.approval import PolicyPreview
    from ttl_odm.stored.rows import PolicyChange, StoredPolicy

FORBIDDEN: Final = 403
CONFLICT: Final = 409
WRONG: Final = 400

_LONGEST: Final = 10_000
"""The most characters of a text: with four bytes each they fit MariaDB's and MySQL's TEXT."""


class Change(TypedDict):
    """A change that a request asks for, as arguments of `preview_policy` and `approve_policy`."""

    target: Any
    ttl: StoredTTL
    scope: object


@dataclass(frozen=True, slots=True)
class StoredDefaults:
    """The stored defaults of some models in one database.

    Attributes:
        engine: The engine, or a function that returns it within a request.
        targets: The models, by the names of their tables in the table of the policies.
        who: Returns the name of the request's sender.
    """

    engine: Engine | Callable[[], Engine]
    targets: Mapping[str, Any]
    who: Callable[[], str]

    @property
    def fields(self) -> list[str]:
        """The fields whose values may have a default of their own."""
        fields = {stored_of(target).by for target in self.targets.values()}
        return sorted(field for field in fields if field is not None)

    def read(self) -> tuple[list[StoredPolicy], list[PolicyChange]]:
        """Read the defaults, and their changes, the newest first."""
        if not self.targets:
            return [], []
        with self._engine().connect() as connection:
            models = self.targets.values()
            return stored_policies(connection, *models), policy_changes(connection, *models)

    def change(self, table: object, ttl: object, scope: object) -> Change:
        """Return the change that a request asks for.

        Raises:
            TTLError: There is no such table, or the ttl is none.
        """
        if not isinstance(table, str) or table not in self.targets:
            raise TTLConfigurationError(
                f"table = {short_repr(table)}: the tables are {', '.join(self.targets) or 'none'}."
            )
        where = f"ttl {short_repr(ttl)}"
        return {
            "target": self.targets[table],
            "ttl": None if ttl is None else parse_stored(as_text(ttl), where=where),
            "scope": None if scope == "" else scope,
        }

    def preview(self, change: Change, secret: str | bytes | None) -> PolicyPreview:
        """Preview a change; its token is signed with a secret."""
        with self._engine().connect() as connection:
            return preview_policy(connection, **change, secret=secret)

    def approve(
        self, change: Change, token: str, reason: str | None, secret: str | bytes | None
    ) -> str | None:
        """Make the change that a token approves, and return its scope as stored."""
        with self._engine().connect() as connection:
            approve_policy(
                connection, **change, token=token, by=self.who(), reason=reason, secret=secret
            )
            return StoredDefault.of(change["target"], change["scope"], connection.dialect).scope

    def _engine(self) -> Engine:
        return self.engine if isinstance(self.engine, Engine) else self.engine()


def as_text(value: object) -> str:
    """Return a value of a request as text, whatever its type."""
    return value if isinstance(value, str) else short_repr(value)


def check_text(name: str, text: str) -> None:
    """Raise TTLConfigurationError for a text that a database can't store."""
    problem = None
    if "\0" in text:
        problem = "a text can't contain NUL"
    elif len(text) > _LONGEST:
        problem = f"a text has at most {_LONGEST:,} characters"
    elif not is_encodable(text):
        problem = "it isn't valid Unicode: half of a surrogate pair is missing"
    if problem is not None:
        raise TTLConfigurationError(f"{short_repr(name)} = {short_repr(text)}: {problem}.")

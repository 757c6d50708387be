"""What extensions with an app of their own need from this one: for tables, and for ``ttl_check``.

Everything else that an extension brings comes with a model's declaration: see
`ttl_odm.django.policy.rules` and `ttl_odm.django.policy.sources`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.sweeper.findings import Finding

    _Text = models.CharField[str, str]
else:
    _Text = models.CharField


def require_app(app: str, purpose: str) -> None:
    """Raise ImproperlyConfigured if `app`, which `purpose` depends on, isn't in INSTALLED_APPS.

    Otherwise Django's own error would name a model that the user has never seen.
    """
    if not apps.is_installed(app):
        raise ImproperlyConfigured(f'{purpose} require the app "{app}": add it to INSTALLED_APPS.')


class ExactField(_Text):
    """Text that every database compares exactly: names and ids in tables of extensions.

    By default, MariaDB and MySQL wouldn't distinguish upper from lower case.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, str | None]:
        """Return the column's type, with a binary collation on MariaDB and MySQL."""
        collation = {"collation": "utf8mb4_bin"} if connection.vendor == "mysql" else {}
        return {**super().db_parameters(connection), **collation}


class DatabaseChecks(Protocol):
    """What an extension looks at in a database though no model declares it."""

    def __call__(self, models: Sequence[Model], alias: str) -> Iterable[Finding]:
        """Report problems; it only reads.

        Args:
            models: The models with a policy that are checked there.
            alias: The alias of the database.
        """
        ...


database_checks: Final[list[DatabaseChecks]] = []
"""The checks of installed extensions: each app adds its own when it is ready."""

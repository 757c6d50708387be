"""Text that is compared exactly: `ExactField`, for names and ids in tables of extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    _Text = models.CharField[str, str]
else:
    _Text = models.CharField


class ExactField(_Text):
    """Text of which MariaDB and MySQL tell upper from lower case, as the others do."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """The column's type; its collation there."""
        collation = {"collation": "utf8mb4_bin"} if connection.vendor == "mysql" else {}
        return {**super().db_parameters(connection), **collation}

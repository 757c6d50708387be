"""The column of names and scopes; migrations name it."""

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

    __module__ = "ttl_odm.django.policies.fields"  # what migrations name

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """The column, by code points there."""
        parameters: dict[str, Any] = {**super().db_parameters(connection)}
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters

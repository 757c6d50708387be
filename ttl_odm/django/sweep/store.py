"""`DjangoStore`: what the sweeper needs to know of a database of Django's.

Found by ``Sweeper(connections["default"])`` through the entry point ``django``, and by
``manage.py ttl_sweep``. Each call uses the thread's own connection to the alias.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from django.db import connections, router

from ttl_odm.django.policy.binding import Binding, bindings
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.purge.removal import hooks_of
from ttl_odm.django.sweep.batch import purge
from ttl_odm.django.sweep.due import count, find_due
from ttl_odm.django.sweep.leases import DjangoLeases
from ttl_odm.django.time import clock
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Hooks, Pace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ttl_odm.sweeper import BatchRequest, BatchResult, Counted, Due

_MOST_ROWS: Final = 10_000
"""In a batch, since but for the plainest deletes its rows or keys go through Python."""


def open_store(connection: Any, targets: Any = None) -> DjangoStore:
    """Make the store of a connection; the entry point ``django`` of ``ttl_odm.stores``.

    Args:
        connection: One of ``django.db.connections``.
        targets: Models, or one; None for all that have a policy.
    """
    return DjangoStore(connection.alias, targets)


class DjangoStore:
    """A `ttl_odm.sweeper.Store` over an alias of ``DATABASES``, with all that a store may offer."""

    def __init__(self, using: str = "default", models: Any = None) -> None:
        """Find what there is to sweep.

        Args:
            using: The alias of the database.
            models: A model with a policy, or a list of these; None for all that the database
                routers let into this database.

        Raises:
            TTLConfigurationError: One of them has no policy, or the database isn't supported.
        """
        self._using = using
        self._given = models
        pace = clock.family_of(connections[using]).pace
        self._pace = replace(pace, highest=min(pace.highest, _MOST_ROWS))
        self.targets()

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit the database."""
        return self._pace

    @property
    def backend(self) -> str:
        """The vendor, as Django has it: ``mysql`` for MariaDB too."""
        return str(connections[self._using].vendor)

    def targets(self) -> Sequence[str]:
        """Name the tables, those that refer to others first."""
        return [binding.model._meta.db_table for binding in self._bindings()]

    def models(self) -> list[Any]:
        """The models, in the same order."""
        return [binding.model for binding in self._bindings()]

    @property
    def hooks(self) -> Hooks:
        """What the models declare as ``__ttl_on_purged__``."""
        return sum((hooks_of(binding.model) for binding in self._bindings()), Hooks())

    @property
    def leases(self) -> DjangoLeases:
        """In a table of the same database."""
        return DjangoLeases(self._using)

    def due(self, target: str) -> Due | None:
        """Find what has expired in a table; None while its TTL is off."""
        with store_errors():
            return find_due(self._binding(target), self._using)

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        with store_errors():
            return purge(self._binding(request.target), self._using, request)

    def count(self, target: str) -> Counted:
        """Count what has expired in a table, and its rows."""
        with store_errors():
            return count(self._binding(target), self._using)

    def now(self) -> datetime:
        """Return the database's present instant."""
        with store_errors():
            return clock.database_now(connections[self._using])

    def _binding(self, target: str) -> Binding:
        return next(each for each in self._bindings() if each.model._meta.db_table == target)

    def _bindings(self) -> list[Binding]:
        given = self._given
        known = {binding.model: binding for binding in bindings()}
        if given is None:
            found = [
                binding
                for model, binding in known.items()
                if router.allow_migrate_model(self._using, model)
            ]
        else:
            listed = [given] if isinstance(given, type) else list(given)
            found = [_known(known, model) for model in listed]
        return _children_first(found)


def _known(known: dict[Any, Binding], model: Any) -> Binding:
    meta = getattr(model, "_meta", None)
    found = None if meta is None else known.get(meta.concrete_model)
    if found is None:
        raise TTLConfigurationError(
            f"{model!r} has no policy to sweep by. Give models that declare a __ttl__, or that "
            "TTL_ODM_POLICIES names."
        )
    return found


def _children_first(found: list[Binding]) -> list[Binding]:
    """Sort by foreign keys, so that rows go before those that they refer to."""
    ordered: list[Binding] = []
    visiting: set[Any] = set()
    by_model = {binding.model: binding for binding in found}

    def visit(binding: Binding) -> None:
        if binding in ordered or binding.model in visiting:
            return
        visiting.add(binding.model)
        for relation in binding.model._meta.related_objects:
            other = by_model.get(relation.related_model)
            if other is not None:
                visit(other)
        ordered.append(binding)

    for binding in found:
        visit(binding)
    return ordered

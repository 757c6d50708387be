"""`DjangoStore`: the sweeper's access to a database of Django's.

``Sweeper(connections["default"])`` finds it by the entry point ``django``; ``manage.py ttl_sweep``
uses it directly. Each call uses the thread's own connection to the alias.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections, router

from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.django.policy.bindings import Binding, bindings
from ttl_odm.django.policy.rules import dependents, rule_of
from ttl_odm.django.purge.archive import sink_of
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.sweep.batch import purge
from ttl_odm.django.sweep.counts import count, count_dependents
from ttl_odm.django.sweep.due import find_due, out_of_reach
from ttl_odm.django.sweep.leases import DjangoLeases
from ttl_odm.django.sweep.transactions import check_timestamps, impatient, unlogged
from ttl_odm.django.time import clock
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Hooks, MissingTargetError, Pace, Server, StoreError
from ttl_odm.sweeper.hooks import hooks_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.sweeper import BatchRequest, BatchResult, Counted, Due, Fact
    from ttl_odm.sweeper.findings import Finding


def open_store(
    connection: BaseDatabaseWrapper, targets: Model | Collection[Model] | None = None
) -> DjangoStore:
    """Return the store of a connection; the entry point ``django`` of ``ttl_odm.stores``.

    Without targets, it sweeps all models that have a policy.
    """
    return DjangoStore(connection.alias, targets)


class DjangoStore:
    """A `ttl_odm.sweeper.Store` over an alias of ``DATABASES``, with every optional feature."""

    def __init__(
        self,
        using: str = "default",
        models: Model | Collection[Model] | None = None,
        *,
        deletes: bool = True,
    ) -> None:
        """Find the models to sweep.

        Args:
            using: The alias of the database.
            models: A model with a policy, or a list of these; None for all that the database
                routers allow in this database.
            deletes: False for a store that is only read, for which no archive has to fit.

        Raises:
            TTLConfigurationError: One of them has no policy, its archive doesn't fit, or the
                database isn't supported.
        """
        self._using = using
        self._models = [models] if isinstance(models, type) else models
        self._checked: set[str] = set()
        self._pace = clock.family_of(connections[using]).pace
        for model in self.models():
            if deletes:
                sink_of(model, using)

    @property
    def using(self) -> str:
        """The alias of its database."""
        return self._using

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit the database."""
        return self._pace

    @property
    def backend(self) -> str:
        """Django's name of the vendor: ``mysql`` for MariaDB too."""
        return str(connections[self._using].vendor)

    @property
    def hides_purges(self) -> bool:
        """Whether the database can hide purges from replicas."""
        return clock.family_of(connections[self._using]).hides_writes

    def targets(self) -> Sequence[str]:
        """List the tables, referring ones before those they refer to."""
        return [binding.model._meta.db_table for binding in self._bindings()]

    def models(self) -> list[Model]:
        """Return the models, in the order of `targets`."""
        return [binding.model for binding in self._bindings()]

    @property
    def hooks(self) -> Hooks:
        """The hooks that models declare as ``__ttl_on_purged__``.

        Also those of models that are not swept: their rows may be removed before rows that they
        refer to.
        """
        models = [binding.model for binding in bindings()]
        return sum((hooks_of(model, model._meta.db_table) for model in models), Hooks())

    @property
    def leases(self) -> DjangoLeases:
        """The leases in a table of the same database."""
        return DjangoLeases(self._using)

    def due(self, target: str) -> Due | None:
        """Find out which rows of a table are due; None while its TTL is off."""
        with self._errors_at(target):
            return find_due(self._binding(target), self._using)

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        using = self._using
        with (
            self._errors_at(request.target, request.timeout),
            unlogged(using, replicate=request.replicate),
        ):
            return purge(self._binding(request.target), using, request)

    def count(self, target: str) -> Counted:
        """Count the expired rows of a table, and all its rows."""
        with self._errors_at(target):
            return count(self._binding(target), self._using)

    def count_facts(self, target: str) -> Mapping[str, Fact]:
        """Count the dependents of the expired rows of a table."""
        with self._errors_at(target):
            rows = count_dependents(self._binding(target), self._using)
            facts = [dependent.facts(rows) for dependent in dependents]
            return {name: fact for named in facts for name, fact in named.items()}

    def out_of_reach(self, target: str) -> list[Finding]:
        """Find rows that no sweep finds, each kind with its fix; this reads the whole table."""
        with self._errors_at(target):
            return out_of_reach(self._binding(target), self._using)

    def now(self) -> datetime:
        """Return the database's current time."""
        with store_errors():
            return clock.database_now(connections[self._using])

    def server(self) -> Server | None:
        """Return the server that answers; None on SQLite."""
        connection = connections[self._using]
        question = clock.family_of(connection).server
        if question is None:
            return None
        with store_errors(), connection.cursor() as cursor:
            cursor.execute(question)
            address, takes_writes = cursor.fetchone()
        return Server(address, bool(takes_writes))

    @contextmanager
    def _errors_at(self, target: str, timeout: float | None = None) -> Iterator[None]:
        """Limit waits and the time of statements, and raise the sweeper's errors.

        A missing table raises MissingTargetError.
        """
        try:
            with store_errors(), impatient(self._using, timeout) as has_fixed_zone:
                if not has_fixed_zone and target not in self._checked:
                    check_timestamps(self._binding(target), connections[self._using])
                    self._checked.add(target)
                yield
        except StoreError as error:
            driver_error = error.__cause__ and error.__cause__.__cause__
            if is_missing_table(driver_error):  # it may be another table that refers to this one
                connection = connections[self._using]
                if target not in connection.introspection.table_names():
                    raise MissingTargetError(f"There is no table {target!r}.") from error
            raise

    def _binding(self, target: str) -> Binding:
        by_table = {binding.model._meta.db_table: binding for binding in self._bindings()}
        return by_table[target]

    @staticmethod
    def _roots(
        models: Collection[Model], policies: Mapping[Model, Binding]
    ) -> dict[Model, Binding]:
        """Return the policies of models.

        A model with a rule is swept with the model at its root, which must be among them.
        """
        concrete: Any = [
            model._meta.concrete_model if hasattr(model, "_meta") else None for model in models
        ]
        roots = {model: policies[model] for model in concrete if model in policies}
        for model, target in zip(concrete, models, strict=True):
            rule = None if model is None else rule_of(model)
            root = model if rule is None else rule.binding.model
            if root in roots:
                continue
            if rule is not None:
                raise rule.rejected("sweep", target._meta.label)
            raise TTLConfigurationError(
                f"{target!r} has no policy, so there is nothing to sweep. Give models that declare "
                "a __ttl__, or that TTL_ODM_POLICIES names."
            )
        return roots

    def _bindings(self) -> list[Binding]:
        """Return the policies in the order of sweeps: referring models before their targets."""
        policies = {binding.model: binding for binding in bindings()}
        models = self._models
        if models is None:
            models = [model for model in policies if router.allow_migrate_model(self._using, model)]
        roots = self._roots(models, policies)
        ordered: dict[Model, Binding] = {}
        visiting: set[Model] = set()

        def visit(model: Model) -> None:
            if model in visiting:
                return
            visiting.add(model)
            for relation in model._meta.related_objects:
                related: Any = relation.related_model
                if related in roots or rule_of(related) is not None:
                    visit(related)
            if model in roots:
                ordered[model] = roots[model]

        for model in roots:
            visit(model)
        return list(ordered.values())

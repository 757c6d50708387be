"""Association rows, those of a many-to-many relation's own table, called ties here.

Django leaves the far table out of a query if the tie's own column is enough: ``filter(guests=7)``,
``Count("guests")``, ``party.guests.count()``. A tie to an expired row would count there. So a join
from a row to its ties requires that the tie's far row is live: in its ON clause, by Django's hook
`get_extra_restriction`.

A query of the ties by their own model sees all of them: ``Party.guests.through.objects``, and
``filter(tagging__tag=7)`` if the application declares that model.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.db.models import BooleanField, ManyToManyField
from django.db.models.expressions import Col, Expression
from django.db.models.fields import related_descriptors
from django.db.models.sql.constants import INNER

from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import is_historical, policy_in, table_policy
from ttl_odm.django.policy.predicate import TRUE, Predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler
    from typing_extensions import Self

    from ttl_odm.django.time.fields import AnyField, BoundSQL

_MARK: Final = "_ttl_odm_associations"
_FAR: Final = "ttl_far"


def install() -> None:
    """Make Django's many-to-many relations see ties to live rows only; do so once."""
    if hasattr(ManyToManyField, _MARK):
        return
    setattr(ManyToManyField, _MARK, True)
    field: Any = ManyToManyField
    field._get_path_info = _with_live_ties(field._get_path_info)
    descriptors: Any = related_descriptors
    descriptors.create_forward_many_to_many_manager = _counting_live_ties(
        descriptors.create_forward_many_to_many_manager
    )


def _with_live_ties(path_info: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(path_info)
    def live_path_info(
        self: Any,
        direct: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
        filtered_relation: object = None,
    ) -> list[Any]:
        first, *rest = path_info(self, direct=direct, filtered_relation=filtered_relation)
        far = rest[0].join_field if len(rest) == 1 else None
        # Until apps are ready, models may still get policies, and Django caches what this returns.
        if far is None or (apps.ready and not _may_expire(far.related_model)):
            return [first, *rest]
        return [first._replace(join_field=_Ties(first.join_field, far)), *rest]

    return live_path_info


def _counting_live_ties(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def create_manager(superclass: type, rel: object, reverse: bool) -> Any:  # noqa: FBT001
        manager = create(superclass, rel, reverse)
        ties = manager.constrained_target

        def constrained_target(self: Any) -> Any:
            """Django's queryset of ties alone, for counts; None if either row may expire."""
            may_expire = _may_expire(self.model) or _may_expire(type(self.instance))
            return None if may_expire else ties.fget(self)

        manager.constrained_target = property(constrained_target)
        return manager

    return create_manager


def _may_expire(model: Any) -> bool:
    return table_policy(model._meta.db_table) is not None and not is_historical(model)


class _Through:
    """Replaces a relation, or its field, in a join to ties; equal ones share a join."""

    def __init__(self, original: Any, far: AnyField) -> None:
        self._original = original
        self._far = far

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which pickle and copy look for
            raise AttributeError(name)
        return getattr(self._original, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.__key() == other.__key()

    def __hash__(self) -> int:
        return hash(self.__key())

    def __reduce__(self) -> tuple[type[_Through], tuple[object, AnyField]]:
        return type(self), self.__key()

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __key(self) -> tuple[object, AnyField]:
        return self._original, self._far


class _Ties(_Through):
    """The relation that leads from a row to its ties."""

    @property
    def field(self) -> _TieField:
        """The ties' foreign key to the row."""
        return _TieField(self._original.field, self._far)

    def get_extra_restriction(self, alias: str, _related_alias: str | None) -> LiveFarRow | None:
        """Return the condition on the ties in the join's ON clause."""
        return _live_far_row(alias, self._far)


class _TieField(_Through):
    """The foreign key by which a subquery that doesn't join the row finds its ties."""

    def get_extra_restriction(self, _alias: str | None, related_alias: str) -> LiveFarRow | None:
        """Return the condition on the ties in the subquery's WHERE clause."""
        return _live_far_row(related_alias, self._far)


def _live_far_row(alias: str, far: AnyField) -> LiveFarRow | None:
    return LiveFarRow(Col(alias, far)) if _may_expire(far.related_model) else None


class LiveFarRow(Expression):
    """Whether the row that a tie leads to is live."""

    conditional = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self, key: Col) -> None:
        """Take the tie's foreign key to that row."""
        super().__init__(output_field=BooleanField())
        self._key = key

    def get_source_expressions(self) -> list[Col]:
        """Return the foreign key, whose alias may change."""
        return [self._key]

    def set_source_expressions(self, exprs: Sequence[Any]) -> None:
        """Set the foreign key."""
        [self._key] = exprs

    def relabeled_clone(self, change_map: Mapping[str, str]) -> LiveFarRow:
        """Return a copy for another alias."""
        return LiveFarRow(self._key.relabeled_clone(change_map))

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> BoundSQL:
        """Return the SQL."""
        query = compiler.query
        far: Any = self._key.target
        [(own, theirs)] = far.related_fields
        table = far.related_model._meta.db_table
        policy = policy_in(query, table)
        if policy is None or options.rows_of(query) != "live" or self._is_joined(query, table):
            return f"({TRUE})", ()
        quote = connection.ops.quote_name
        live, _ = Predicate.of(policy, _FAR, "live").as_sql(compiler, connection)
        key, params = compiler.compile(Col(self._key.alias, own))
        rows = f"{quote(table)} {quote(_FAR)}"
        tie = f"{quote(_FAR)}.{quote(str(theirs.column))} = {key}"
        return f"EXISTS (SELECT 1 FROM {rows} WHERE {tie} AND {live})", tuple(params)  # noqa: S608

    def _is_joined(self, query: Any, table: str) -> bool:
        """Whether the query joins the far row, which then has the predicate."""
        return any(
            join.parent_alias == self._key.alias
            and join.table_name == table
            and join.join_type == INNER
            and join.join_field is self._key.target
            and query.alias_refcount[alias]
            for alias, join in query.alias_map.items()
        )

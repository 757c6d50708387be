"""Instances and querysets: saving an expired row raises, instead of creating a new one.

Django's ``save()`` runs an UPDATE, and an INSERT if that matched nothing. For an instance whose row
has expired since it was read, the INSERT would bring the row back to life. So an instance of a
model with a policy that came from the database is only ever updated; if its row is gone, ``save()``
raises.

`TTLQuerySet` has the flags of `ttl_odm.django.policy.options` as methods, for convenience only: the
gate hides expired rows, whatever manager a model has. `touch` renews the rows of any queryset.
"""

from __future__ import annotations

import functools
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asgiref.sync import sync_to_async
from django.db import models, router

from ttl_odm.core.lifetime import check_only_if, interval, life_seconds
from ttl_odm.core.policy import ExpireAt
from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import binding_of, policy_of, table_policy
from ttl_odm.django.policy.predicate import ExpiresWithin
from ttl_odm.django.purge.errors import error_of
from ttl_odm.django.time.fields import Cutoff, Stamp, StampAgo
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from datetime import timedelta

    from django.db.models import Model as Instance
    from typing_extensions import Self

    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.policy.options import AnyQuerySet

M = TypeVar("M", bound=models.Model)

_MARK: Final = "_ttl_odm_guard"


def guard(model: Model) -> None:
    """Make ``save()`` of a model raise for an expired row, instead of inserting it again."""
    owner: Any = model
    original = owner._do_update
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def _do_update(self: Instance, base_qs: AnyQuerySet, using: str, *args: Any) -> object:
        # args: pk_val, values, update_fields, forced_update, and what later Djangos add.
        policy = table_policy(base_qs.model._meta.db_table)
        if policy is None:
            return original(self, base_qs, using, *args)
        if policy.link is not None:
            fields = policy.binding.model._meta.local_concrete_fields
            names = {name for field in fields for name in (field.name, field.attname)}
            if args[2] is None or not names.isdisjoint(args[2]):  # save() wrote the root first
                base_qs = options.after_root(options.include_expired(base_qs))
            return original(self, base_qs, using, *args)
        updated = original(self, base_qs, using, *args)
        if updated or self._state.adding or policy.is_off_for(self, using):
            return updated
        if _was_read_in(self, using):
            raise error_of(type(self))(model=self._meta.label, key=self.pk)
        return updated

    setattr(_do_update, _MARK, True)
    owner._do_update = _do_update


def _was_read_in(obj: Instance, using: str) -> bool:
    """Whether an instance was read from this database, or from a replica of it.

    Django's routers say which databases hold the same rows: they allow relations between them.
    """
    if obj._state.db == using:
        return True
    twin = copy(obj)
    twin._state.db = using
    return bool(router.allow_relation(obj, twin))


def touch(
    queryset: AnyQuerySet,
    *,
    at_most_every: float | timedelta | None = None,
    only_if: OnlyIf | None = None,
    expire_in: float | timedelta | None = None,
) -> int:
    """Restart the lifetime of a queryset's live rows by one UPDATE, without loading them.

    It sends no signals. `TTLQuerySet` has it as a method, with an asynchronous twin, ``atouch``.

    Args:
        queryset: Any queryset of a model with a policy; no slice.
        at_most_every: Seconds, or a timedelta; rows that were written more recently are left alone.
        only_if: With "longer" or "has_ttl", rows that never expire are left alone; with "no_ttl",
            all others. With "shorter", rows are left alone unless `expire_in` makes their life
            shorter.
        expire_in: The rows' new life in whole seconds, or a timedelta of them. With zero or less
            the rows expire at once.

    Returns:
        The number of rows that were renewed. Rows that a condition leaves alone don't count.

    Raises:
        TTLConfigurationError: The model has no lifetime of its own, or an argument is invalid.
        TTLError: No write extends a life under this policy, or rows can't have their own ttl.
        InvalidTTL: `expire_in` isn't whole, or is over 2147483647.
    """
    model = queryset.model
    binding = own_binding(model, "touch()")
    seconds: int | None = None
    values: dict[str, object]
    if expire_in is None:
        check_extended(binding, model)
        values = {binding.stamp.name: Stamp.of(binding.form)}
    else:
        field = binding.own or binding.stamp
        seconds = life_seconds(expire_in, where=f"{model.__name__}.{field.name}")
        values = _with_life(binding, model, seconds)
    conditions = _touch_conditions(binding, at_most_every, only_if, seconds)
    return queryset.filter(*conditions).update(**values)


def own_binding(model: Model, call: str) -> Binding:
    """Return the policy of a model; raise if it has none of its own, which `call` needs."""
    policy, binding = policy_of(model), binding_of(model)
    where = f"{model.__name__}.{call}: {model.__name__}"
    error = None if policy is None else policy.rejected("lifetime", where)
    if error is not None:
        raise error
    if binding is None:
        raise TTLConfigurationError(
            f"{model.__name__}.{call}: {model.__name__} has no policy; derive it from TTLModel and "
            "declare __ttl__, or name it in TTL_ODM_POLICIES."
        )
    return binding


def check_extended(binding: Binding, model: Model) -> None:
    """Reject a touch under a policy by which no write extends a row's life."""
    if not binding.stamps:
        raise TTLError(
            f"{model.__name__}.touch(): with {binding.policy!r} no write renews a row; set "
            f"{binding.stamp.name!r}, or declare TTL(seconds, last_modified=...)."
        )


def _touch_conditions(
    binding: Binding,
    at_most_every: float | timedelta | None,
    only_if: OnlyIf | None,
    seconds: int | None = None,
) -> list[models.Q]:
    """Return the conditions on the rows that a touch renews; `seconds` is their new life."""
    conditions = []
    if at_most_every is not None:
        if not binding.stamps:
            raise TTLError(
                f"touch(at_most_every=...): with {binding.policy!r}, no field records when a row "
                "was last written; leave at_most_every out."
            )
        cutoff = Cutoff(interval(at_most_every).total_seconds(), binding.form, binding.stamp)
        conditions.append(models.Q((f"{binding.stamp.name}__lte", cutoff)))
    check_only_if(only_if)
    if only_if is None:
        return conditions
    has_end = binding.has_end
    if only_if in ("has_ttl", "no_ttl"):
        return [*conditions, has_end if only_if == "has_ttl" else ~has_end]
    if seconds is None:
        # The length of the life makes no difference: a row that has an end gets a later one.
        return [*conditions, has_end if only_if == "longer" else models.Q(pk__in=[])]
    ends_before = models.Q(ExpiresWithin(binding, seconds))
    return [*conditions, ends_before if only_if == "longer" else ~ends_before]


def _with_life(binding: Binding, model: Model, seconds: int) -> dict[str, object]:
    """Return the assignments that give rows a life of these seconds."""
    # A column that isn't ours may hold whole seconds only, and rounds up.
    passed = StampAgo(1 if binding.form == "instant" else 2, binding.form)
    if binding.own is not None:
        stamp = Stamp.of(binding.form) if seconds else passed
        return {binding.own.name: seconds or 1, binding.stamp.name: stamp}
    if isinstance(binding.policy, ExpireAt):
        ahead = StampAgo(-seconds, binding.form)
        return {binding.stamp.name: ahead if seconds else passed}
    raise TTLError(
        f"{model.__name__}.touch(expire_in=...): with {binding.policy!r}, a row has no lifetime "
        f"of its own; set {binding.stamp.name!r}, or declare TTL(seconds)."
    )


class TTLQuerySet(models.QuerySet[M]):
    """A queryset with methods that choose whether it reads live or expired rows, and `touch`."""

    def include_expired(self) -> Self:
        """Read expired rows too, also in joined tables; this doesn't revive them."""
        return options.include_expired(self)

    def only_expired(self) -> Self:
        """Read only expired rows that have not been purged yet."""
        return options.only_expired(self)

    def keep_last_modified(self) -> Self:
        """Keep ``update()`` and ``bulk_update()`` from restarting the rows' lifetime."""
        return options.keep_last_modified(self)

    def touch(
        self,
        *,
        at_most_every: float | timedelta | None = None,
        only_if: OnlyIf | None = None,
        expire_in: float | timedelta | None = None,
    ) -> int:
        """Restart the rows' lifetime by one UPDATE; see `ttl_odm.django.touch`."""
        return touch(self, at_most_every=at_most_every, only_if=only_if, expire_in=expire_in)

    touch.alters_data = True  # type: ignore[attr-defined] # templates must not call it

    async def atouch(
        self,
        *,
        at_most_every: float | timedelta | None = None,
        only_if: OnlyIf | None = None,
        expire_in: float | timedelta | None = None,
    ) -> int:
        """Restart the rows' lifetime, as `touch` does."""
        return await sync_to_async(touch)(
            self, at_most_every=at_most_every, only_if=only_if, expire_in=expire_in
        )

    atouch.alters_data = True  # type: ignore[attr-defined]


if TYPE_CHECKING:

    class TTLManager(models.Manager[M]):
        """The result of `from_queryset`, for type checkers."""

        def all(self) -> TTLQuerySet[M]: ...  # noqa: D102
        def filter(self, *args: Any, **kwargs: Any) -> TTLQuerySet[M]: ...  # noqa: D102
        def exclude(self, *args: Any, **kwargs: Any) -> TTLQuerySet[M]: ...  # noqa: D102
        def include_expired(self) -> TTLQuerySet[M]: ...  # noqa: D102
        def only_expired(self) -> TTLQuerySet[M]: ...  # noqa: D102
        def keep_last_modified(self) -> TTLQuerySet[M]: ...  # noqa: D102
        def touch(  # noqa: D102
            self,
            *,
            at_most_every: float | timedelta | None = None,
            only_if: OnlyIf | None = None,
            expire_in: float | timedelta | None = None,
        ) -> int: ...
        async def atouch(  # noqa: D102
            self,
            *,
            at_most_every: float | timedelta | None = None,
            only_if: OnlyIf | None = None,
            expire_in: float | timedelta | None = None,
        ) -> int: ...
else:
    TTLManager = models.Manager.from_queryset(TTLQuerySet, "TTLManager")
    """The manager of `TTLQuerySet`."""


class AllObjectsManager(TTLManager[M]):
    """A manager that reads expired rows too."""

    def get_queryset(self) -> models.QuerySet[M]:
        """Return all rows."""
        return options.include_expired(super().get_queryset())

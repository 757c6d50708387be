"""``renews=True``: writes that restart the lifetime of the rows' parents.

The ``_ts`` of the parents is set before the write. If the parents follow others in turn, it is the
``_ts`` of the rows at the root. A parent's key that the database computes isn't known beforehand,
so it renews nothing.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from django.db.models import QuerySet
from django.db.models.deletion import Collector
from django.db.models.sql import Query

from ttl_odm.django.purge.removal import chunks
from ttl_odm.django.time.fields import Cutoff, Stamp
from ttl_odm.follows.django.follower import Following, following_of, is_one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.db.models.sql import DeleteQuery, UpdateQuery

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.follows.django.follower import Key

_MARK: Final = "_ttl_odm_renewals"

_renewed: ContextVar[set[tuple[str, Model, Key]] | None] = ContextVar(
    "ttl_odm_renewed", default=None
)
"""The parents that a call of several statements has renewed; None outside of such calls."""


def renew(following: Following, using: str, keys: Iterable[Key]) -> None:
    """Restart the lifetime of live parents, by their keys, or of the live rows at their root."""
    links, done = following.links, _renewed.get()
    new = dict.fromkeys(keys)
    if done is not None:
        new = {key: None for key in new if (using, links.parent, key) not in done}
        done.update((using, links.parent, key) for key in new)
    for some in chunks(list(new)):
        _renew(following, using, some)


def _renew(following: Following, using: str, keys: Sequence[Key]) -> None:
    links, seconds = following.links, following.declared.at_most_every
    for rule, above in pairwise(following.chain()):
        rows: AnyQuerySet = QuerySet(model=rule.links.parent, using=using)
        names = [own.attname for own in above.links.own]
        grandparents = set(rows.filter(is_one_of(rule.links.theirs, keys)).values_list(*names))
        keys = [key for key in grandparents if None not in key]
        links = above.links
    binding = following.binding
    roots: AnyQuerySet = QuerySet(model=links.parent, using=using).filter(
        is_one_of(links.theirs, keys)
    )
    if seconds is not None:
        cutoff = Cutoff(seconds, binding.form, binding.stamp)
        roots = roots.filter(**{f"{binding.stamp.name}__lte": cutoff})
    if keys:
        roots.update(**{binding.stamp.name: Stamp(binding.form)})


def parents_matched(
    following: Following, query: UpdateQuery | DeleteQuery, using: str
) -> list[Key]:
    """Return the keys of the present parents of the rows that an UPDATE or DELETE will match."""
    rows = query.chain(klass=Query)
    rows.clear_ordering(force=True)
    rows.distinct = True
    rows.clear_select_clause()
    rows.add_fields([own.attname for own in following.links.own], allow_m2m=False)
    keys = rows.get_compiler(using).results_iter(tuple_expected=True)
    return [tuple(key) for key in keys if None not in key]


def install() -> None:
    """Make Django's calls of several statements renew each parent once."""
    _wrap(QuerySet, "_batched_insert", lambda rows: following_of(rows.model) is not None)
    _wrap(QuerySet, "bulk_update", lambda rows: following_of(rows.model) is not None)
    _wrap(Collector, "delete", lambda _: True)


def _wrap(owner: type, name: str, concerns: Callable[[Any], bool]) -> None:
    """Replace a method: all of its statements renew each parent once, if it concerns followers."""
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def call(self: object, *args: object, **kwargs: object) -> object:
        if not concerns(self):
            return original(self, *args, **kwargs)
        token = _renewed.set(set())
        try:
            return original(self, *args, **kwargs)
        finally:
            _renewed.reset(token)

    setattr(call, _MARK, True)
    setattr(owner, name, call)

"""`enable` and `disable`: a policy on document classes that aren't ours, their source untouched.

A class gets ``__ttl__`` and so on as if it had declared them. One without `TTLMixin` also gets the
two things by which the mixin puts a policy on a collection: `set_collection`, which Beanie calls,
and query classes that know when to leave Beanie's cache alone. What it doesn't get is the
mixin's fields and methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized
from beanie.odm.queries.find import FindMany, FindOne

from ttl_odm.beanie.declare import checks
from ttl_odm.beanie.declare.mixin import TTLMixin
from ttl_odm.beanie.gate.cursors import deciding_fields
from ttl_odm.beanie.gate.database import gated
from ttl_odm.beanie.objects.cache import TTLFindMany, TTLFindOne
from ttl_odm.beanie.policy.binding import collection_of, declared_policy, purge_of, registry_of
from ttl_odm.beanie.policy.ttl_indexes import check as check_policy
from ttl_odm.beanie.policy.ttl_indexes import check_purge
from ttl_odm.beanie.purge.modes import mode_of
from ttl_odm.beanie.time import durations
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from ttl_odm.core.policy import Policy

_MISSING: Final = object()
_before: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()
"""What `enable` has replaced in a class, for `disable`; `_MISSING` for what wasn't there."""


def enable(  # noqa: PLR0913 (what a class may declare)
    target: Any,
    policy: Policy | float | timedelta | None,
    *,
    purge: str | None = None,
    archive: Any = None,
    on_purged: Any = None,
    sweep: str | None = None,
) -> None:
    """Give a document class a lifetime, whoever wrote it.

    From then on it is as if the class had declared ``__ttl__ = policy``, before or after
    `init_beanie`. Do it where the application starts. Once more with another policy replaces the
    first. Nothing happens in the database: `ensure_indexes` makes indexes.

    Args:
        target: A document class of Beanie's, with `TTLMixin` or without.
        policy: What ``__ttl__`` may be: seconds, -1, None, `TTL`, `ExpireAfter`, `ExpireAt`.
        purge: What ``__ttl_purge__`` may be: who deletes, "native" or "sweeper". None, here and in
            the next three, leaves what the class declares or was given before.
        archive: What ``__ttl_archive__`` may be: where expired documents are kept.
        on_purged: What ``__ttl_on_purged__`` may be: whom to tell of them.
        sweep: What ``__ttl_sweep__`` may be: how the sweeper finds them, "index" or "scan".

    Raises:
        InvalidTTL: The policy is a number that is no ttl.
        TTLConfigurationError: The target is no document class, has no field that the policy
            names, or could not read its documents any more.
    """
    if not (isinstance(target, type) and issubclass(target, Document)):
        raise TTLConfigurationError(f"enable({target!r}): give a document class of Beanie's.")
    given = {
        "__ttl__": policy,
        "__ttl_purge__": purge,
        "__ttl_archive__": archive,
        "__ttl_on_purged__": on_purged,
        "__ttl_sweep__": sweep,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    before = _replace(target, {**chosen, "__ttl__": policy, **_machinery(target)})
    try:
        _check(target)
        _bind_again(target)
    except BaseException:
        _replace(target, before)
        _bind_again(target)
        raise
    kept = _before.setdefault(target, {})
    for name, value in before.items():
        kept.setdefault(name, value)


def disable(target: Any) -> None:
    """Undo `enable`: what the class declares itself, if anything, counts again.

    Raises:
        TTLConfigurationError: The target was not enabled.
    """
    before = _before.pop(target, None) if isinstance(target, type) else None
    if before is None:
        name = getattr(target, "__name__", target)
        raise TTLConfigurationError(
            f"{name} was not enabled, so it can't be disabled; to switch off a TTL that a class "
            "declares, set its __ttl__ to None."
        )
    _replace(target, before)
    _bind_again(target)


def _machinery(target: Any) -> dict[str, Any]:
    if issubclass(target, TTLMixin):
        return {}
    plain = target.set_collection.__func__
    if getattr(plain, "is_enabled_by_ttl_odm", False):
        return {}

    def set_collection(cls: Any, collection: Any) -> None:
        """Take the collection that Beanie gives, gated, and put the policy on it."""
        checks.check_collection(cls)
        ours = gated(collection)
        _bind(cls, ours)
        durations.mark(cls)
        plain(cls, ours)

    set_collection.is_enabled_by_ttl_odm = True  # type: ignore[attr-defined]
    made: dict[str, Any] = {"set_collection": classmethod(set_collection)}
    if target._find_one_query_class is FindOne:
        made["_find_one_query_class"] = TTLFindOne
    if target._find_many_query_class is FindMany:
        made["_find_many_query_class"] = TTLFindMany
    return made


def _replace(target: type, attributes: dict[str, Any]) -> dict[str, Any]:
    """Set (or with `_MISSING` remove) attributes of a class; returns what was there."""
    before = {name: vars(target).get(name, _MISSING) for name in attributes}
    for name, value in attributes.items():
        if value is not _MISSING:
            setattr(target, name, value)
        elif before[name] is not _MISSING:
            delattr(target, name)
    return before


def _check(target: Any) -> None:
    """Refuse what cannot work."""
    policy = declared_policy(target)
    check_policy(policy)
    check_purge(policy, purge_of(target))
    if target.model_config.get("extra") == "allow":
        return
    own = {info.alias or name for name, info in target.model_fields.items()}
    missing = [each for each in deciding_fields(policy) if each.partition(".")[0] not in own]
    if wrong := [each for each in missing if each not in ("_ts", "ttl")]:
        raise TTLConfigurationError(
            f"enable({target.__name__}): it has no field {', '.join(map(repr, wrong))}. It has "
            f"{', '.join(map(repr, sorted(own)))}."
        )
    if missing and target.model_config.get("extra") == "forbid":
        raise TTLConfigurationError(
            f"enable({target.__name__}): it forbids fields that it doesn't declare, so it could "
            f"not read documents with {missing[0]!r}. Name fields of its own in the policy."
        )


def _bind_again(target: Any) -> None:
    """Put the policy on the collections of a class, and of those under it, that have one."""
    for model in (target, *_under(target)):
        try:
            collection = collection_of(model)
        except (CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen it yet
            continue
        if _is_enabled(model):
            model.set_collection(collection)
        else:
            database = collection.database
            registry_of(database.client).unbind(database.name, collection.name)


def _bind(model: Any, collection: Any) -> None:
    database = collection.database
    registry = registry_of(database.client)
    binding = registry.bind(model, database.name, collection.name, database.ttl_backend)
    mode_of(binding, collection.name)  # a slip is found now, not by the first write that meets it


def _is_enabled(model: Any) -> bool:
    return issubclass(model, TTLMixin) or hasattr(model, "__ttl__")


def _under(model: Any) -> Iterator[Any]:
    for each in model.__subclasses__():
        yield each
        yield from _under(each)

"""Attributes that are set on a class of somebody else's, and put back.

A policy is given to a class that doesn't declare one by setting ``__ttl__`` and its like on it, as
if it had. This module remembers what the class had before the first of several such changes.

It must not know what the attributes mean, nor what a class has to be told after a change.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_MISSING: Final = object()
"""Stands for an attribute that wasn't there."""


class Overlay:
    """What was set on classes, over what they have themselves."""

    def __init__(self) -> None:
        """Have nothing set."""
        self._before: WeakKeyDictionary[Any, dict[str, object]] = WeakKeyDictionary()

    @contextmanager
    def put(
        self, owner: Any, attributes: Mapping[str, object], *, undone: Callable[[], object]
    ) -> Iterator[None]:
        """Set attributes, and let the block see to what hangs on them.

        If the block raises, the attributes are put back as they were, and `undone` is called. The
        owner may also be another object with attributes and a hash, such as an instance of a plain
        class.
        """
        before = _replace(owner, attributes)
        try:
            yield
        except BaseException:
            _replace(owner, before)
            undone()
            raise
        self._before[owner] = {**before, **self._before.get(owner, {})}

    def remove(self, owner: Any, *, name: str) -> None:
        """Put back what an owner had before the first `put`; refuse one that had none, by name."""
        before = self._before.pop(owner, None)
        if before is None:
            raise TTLConfigurationError(
                f"{name} was not enabled, so it can't be disabled; to switch off a TTL that a "
                "class declares, set its __ttl__ to None."
            )
        _replace(owner, before)


def _replace(owner: Any, attributes: Mapping[str, object]) -> dict[str, object]:
    """Set (or with `_MISSING` remove) attributes; return what was there."""
    before = {name: vars(owner).get(name, _MISSING) for name in attributes}
    for name, value in attributes.items():
        if value is not _MISSING:
            setattr(owner, name, value)
        elif before[name] is not _MISSING:
            delattr(owner, name)
    return before

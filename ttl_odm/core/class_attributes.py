"""The attributes of a class that isn't ours: reading its annotations, and setting attributes on it.

`enable()` gives a policy to a class that declares none by setting ``__ttl__`` and similar
attributes on it. `Overlay` remembers what the class had before the first of several such changes.

This module must not know what the attributes mean, nor what depends on them.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_MISSING: Final = object()
"""Stands for an attribute that the class didn't have."""


def annotations_of(cls: type) -> dict[str, Any]:
    """Return a class's own annotations.

    From Python 3.14 on annotations are evaluated when they are read, and a name that is not defined
    yet, or only for type checkers, raises an error. As in SQLAlchemy and pydantic, such a name
    remains a reference here.
    """
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 (new in 3.14)

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


class Overlay:
    """Attributes set on classes, over those that the classes define themselves."""

    def __init__(self) -> None:
        """Begin with no attributes set."""
        self._before: WeakKeyDictionary[object, dict[str, object]] = WeakKeyDictionary()

    @contextmanager
    def put(
        self, owner: object, attributes: Mapping[str, object], *, undone: Callable[[], object]
    ) -> Iterator[None]:
        """Set attributes, and run the block, which updates whatever depends on them.

        If the block raises, the attributes are put back as they were, and `undone` is called.

        Args:
            owner: A class, or any other object with attributes and a hash, such as an instance of
                a plain class.
            attributes: The values by name.
            undone: Called after a failure, once the attributes are back.
        """
        before = _replace(owner, attributes)
        try:
            yield
        except BaseException:
            _replace(owner, before)
            undone()
            raise
        self._before[owner] = {**before, **self._before.get(owner, {})}

    def remove(self, owner: object, *, name: str) -> None:
        """Put back what an owner had before the first `put`.

        Raises:
            TTLConfigurationError: There was no `put`; the message calls the owner by `name`.
        """
        before = self._before.pop(owner, None)
        if before is None:
            raise TTLConfigurationError(
                f"{name} was not enabled, so it can't be disabled; to switch off a TTL that a "
                "class declares, set its __ttl__ to None."
            )
        _replace(owner, before)


def _replace(owner: object, attributes: Mapping[str, object]) -> dict[str, object]:
    """Set attributes, or remove those that are `_MISSING`; return the previous values."""
    before = {name: vars(owner).get(name, _MISSING) for name in attributes}
    for name, value in attributes.items():
        if value is not _MISSING:
            setattr(owner, name, value)
        elif before[name] is not _MISSING:
            delattr(owner, name)
    return before

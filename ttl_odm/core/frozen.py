"""A base for small immutable value types.

It does what ``@dataclass(frozen=True, slots=True)`` would do. Importing `dataclasses` takes
about 14 ms (it imports `inspect`), which is most of what ``import ttl_odm`` may cost, and a
policy has to write its own ``__init__`` anyway because it accepts more types than it stores.

This module must not know what a policy is.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see ttl_odm.core.values
if TYPE_CHECKING:
    from typing import NoReturn

    from typing_extensions import Self


class Frozen:
    """Immutable, compared by value, hashable, picklable.

    A subclass names its fields in ``__slots__``, takes each as an argument of ``__init__`` and
    stores them all with `_store`.
    """

    __slots__: tuple[str, ...] = ()

    def _store(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _fields(self) -> dict[str, object]:
        # A subclass's own __slots__ lack those of its bases.
        slots = (vars(base).get("__slots__", ()) for base in reversed(type(self).__mro__))
        return {name: getattr(self, name) for names in slots for name in names}

    def __replace__(self, **changes: object) -> Self:
        """Return a copy with some fields changed (`copy.replace` of Python 3.13 calls this)."""
        return type(self)(**(self._fields() | changes))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy through ``__init__``: restoring slots would need ``__setattr__``."""
        return _build, (type(self), self._fields())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse."""
        message = f"{type(self).__name__} is immutable: make a new one to change {name!r}."
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse."""
        message = f"{type(self).__name__} is immutable: {name!r} cannot be deleted."
        raise AttributeError(message)

    def __eq__(self, other: object) -> bool:
        """Compare by type and fields."""
        if not isinstance(other, Frozen) or type(self) is not type(other):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        """Hash by type and fields."""
        return hash((type(self), *self._fields().values()))

    def __repr__(self) -> str:
        """Show the fields as the call that makes an equal object."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"{type(self).__name__}({fields})"


def _build(cls: type[Frozen], fields: dict[str, object]) -> Frozen:
    return cls(**fields)

"""What a class whose documents follow others can't declare of their removal."""

from __future__ import annotations

from typing import Any, Final

from ttl_odm.combinations import combination
from ttl_odm.errors import TTLConfigurationError

_OPTIONS: Final = {
    "__ttl_archive__": "ttl_archive",
    "__ttl_on_purged__": "ttl_on_purged",
    "__ttl_partition__": "ttl_partition",
    "__ttl_purge__": "ttl_purge",
    "__ttl_sweep__": "ttl_sweep",
}


def check_options(model: Any) -> None:
    """Reject what would have no effect: followers are deleted with their parents.

    It is read when the class is declared and when its documents are removed, since an archive may
    be declared in between.

    Raises:
        TTLConfigurationError: One of these is declared.
    """
    for name, setting in _OPTIONS.items():
        settings = (getattr(base.__dict__.get("Settings"), setting, None) for base in model.__mro__)
        value = getattr(model, name, None) or next((one for one in settings if one), None)
        if value is not None:
            line = combination("beanie", "follows", "archive")  # which are alike
            fix = line.instead_for(name=name, model=model.__name__)
            raise TTLConfigurationError(
                f"{model.__name__}.{name} = {value!r}: {line.reason}; {fix}."
            )

"""Types of ours that Alembic writes into a revision by itself, and the import that they need.

A policy may name one of the mixin's columns and leave the other out (``TTL(3600, override=None)``,
``TTL(3600, last_modified="issued_at")``). Such a column is added by Alembic's own operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ttl_odm.sqlalchemy.time.clock import LastModified, Seconds

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

_RENDER_ITEM: Final = "render_item"


def import_for_types(autogen_context: AutogenContext) -> None:
    """Have a revision that names a type of ours import `ttl_odm.alembic`, as `op` does."""
    theirs = autogen_context.opts.get(_RENDER_ITEM)

    def render(kind: str, item: Any, context: AutogenContext) -> Any:
        rendered = theirs(kind, item, context) if theirs else False
        if rendered is False and isinstance(item, (LastModified, Seconds)):
            context.imports.add("import ttl_odm.alembic")
        return rendered

    # As render_item of env.py, which goes first.
    autogen_context.opts = {**autogen_context.opts, _RENDER_ITEM: render}

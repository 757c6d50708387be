"""``session.execute(update(Model))``: objects in memory follow the rows, not a guess.

SQLAlchemy's default strategy evaluates the WHERE clause in Python to find the objects that a
bulk UPDATE or DELETE has changed. It knows nothing of the predicate, and would change or drop
objects whose rows have expired and were not matched. For TTL models the matched rows are
fetched instead; ``synchronize_session=False`` stays what it is.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from sqlalchemy.sql.base import CompileState

from ttl_odm.sqlalchemy.policy.binding import binding_of, root_binding_of
from ttl_odm.sqlalchemy.policy.parameters import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.rewrite.stamps import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable


def _wrap_evaluation(evaluate: Callable[..., Any]) -> Any:
    @wraps(evaluate)
    def fetch_instead(cls: Any, *arguments_and_options: Any) -> Any:
        *arguments, update_options = arguments_and_options
        if root_binding_of(update_options._subject_mapper.local_table) is None:
            return evaluate(cls, *arguments, update_options)
        update_options += {"_synchronize_session": "fetch"}
        return cls._do_pre_synchronize_fetch(*arguments, update_options)

    return classmethod(fetch_instead)


def _wrap_update(before_execute: Callable[..., Any]) -> Any:
    @wraps(before_execute)
    def stamped(
        cls: Any, session: Any, statement: Any, params: Any, options: Any, *rest: Any
    ) -> Any:
        # The gate stamps every UPDATE; saying so here lets the ORM expire the old value that
        # objects in memory have.
        binding = binding_of(statement.table)
        keeps = {**statement._execution_options, **options}.get(KEEP_LAST_MODIFIED)
        ordered = getattr(statement, "_ordered_values", None) or getattr(
            statement, "_maintain_values_ordering", False
        )
        if (
            binding is not None
            and binding.stamps
            and not ordered
            and not isinstance(params, list)
            and not keeps
        ):
            statement = statement.values({binding.last_modified: Stamp()})
        elif keeps:
            # An update by primary key loses the options that session.execute() was given.
            statement = statement.execution_options(**{KEEP_LAST_MODIFIED: True})
        return before_execute(cls, session, statement, params, options, *rest)

    return classmethod(stamped)


def install() -> None:
    """Wrap the ORM's bulk statements; called once, when ``ttl_odm.sqlalchemy`` is imported."""
    plugins: Any = CompileState.plugins
    update, delete = plugins["orm", "update"], plugins["orm", "delete"]
    for state in (update, delete):
        for name in ("_do_pre_synchronize_auto", "_do_pre_synchronize_evaluate"):
            setattr(state, name, _wrap_evaluation(getattr(state, name).__func__))
    update.orm_pre_session_exec = _wrap_update(update.orm_pre_session_exec.__func__)

"""The world with ttl_odm."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect
from sqlalchemy.orm.attributes import set_committed_value

from tests.clocks import age
from tests.leaks.data import DAY, ROWS
from tests.leaks.worlds import TimelessWorld, lasting_table
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table
    from sqlalchemy.orm import Session

    from tests.leaks.data import Row


class Lasting(TTLMixin):
    """`TTLMixin` that takes the default ttl as a class argument."""

    joins_inner = True

    def __init_subclass__(cls, ttl: int | None = None, **kw: Any) -> None:
        if ttl is not None:
            cls.__ttl__ = ttl
        if vars(cls).get("__mapper_args__", {}).get("concrete"):
            # SQLAlchemy asks of a concrete class that it declares all its columns again.
            for name in ("last_modified", "ttl"):
                setattr(cls, name, vars(TTLMixin)[name])
        super().__init_subclass__(**kw)


class LivingWorld(TimelessWorld):
    """All rows, with their lifetimes, read through ttl_odm."""

    mixin = Lasting

    def give_lifetime(self, connection: Connection, table: Table, row: Row) -> None:
        """Set the row's own ttl and age it, both by raw SQL."""
        if row.life.ttl is not None:
            connection.exec_driver_sql(
                f"UPDATE {table.name} SET ttl = {row.life.ttl} WHERE id = {row.values['id']}"  # noqa: S608
            )
        if row.life.age:
            age(connection, table.name, row.values["id"], row.life.age)

    def lasting(self, table: Table) -> Table:
        """The table that holds the lifetimes of a table's rows."""
        return table

    def let_pass(self, session: Session, model: Any, seconds: int) -> None:
        """Age the rows by raw SQL."""
        for row in ROWS:
            if row.model == model.__name__:
                table = self.lasting(lasting_table(inspect(model))).name
                age(session.connection(), table, row.values["id"], seconds)

    def pass_time(self, session: Session, *objects: Any) -> None:
        """Move the rows into the past by raw SQL, and what the objects know of their age too."""
        for each in objects:
            mapper = inspect(each).mapper
            (key,) = inspect(each).identity
            table = self.lasting(lasting_table(mapper)).name
            age(session.connection(), table, key, 2 * DAY)
            if "last_modified" in vars(each):
                earlier = each.last_modified - timedelta(days=2)
                set_committed_value(each, "last_modified", earlier)

"""The world in which rows follow others: what the paths read has no lifetime of its own.

Each row of a class in `FOLLOWING` has one of another class as its parent, and that one has the
lifetime. So whatever a path reads, and however, the answer is the same as in
`tests.leaks.living.LivingWorld`. What paths put has no parent, and is live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer
from sqlalchemy.orm import mapped_column

from tests.leaks.living import Lasting, LivingWorld
from ttl_odm import Follows
from ttl_odm.follows.sqlalchemy.follower import following_of
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from tests.leaks.data import Row

FOLLOWING = frozenset(
    """
    Customer Profile Order Item Tag Membership Category Guest Wish Room Stay
    Visit Badge Meal Desk Ticket Reply Paper Booking Album Photo
    """.split()  # noqa: SIM905 (a list of strings would be twice as long)
)
"""The others keep their lifetimes: subclasses with a table or a default of their own can't follow,
and the rest is about keys."""


class Heading(Lasting):
    """A mixin with which the rows of a class follow those of another that is declared for it."""

    def __init_subclass__(cls, ttl: int | None = None, **kw: Any) -> None:
        if cls.__name__ not in FOLLOWING or ttl is None:
            super().__init_subclass__(ttl=ttl, **kw)
            return
        _, base = cls.__bases__
        key = mapped_column(Integer, primary_key=True, autoincrement=False)
        members = {
            "__tablename__": f"lives_of_{cls.__tablename__}",
            "__ttl__": ttl,
            "__module__": __name__,
            "id": key,
        }
        life = type(f"LifeOf{cls.__name__}", (TTLMixin, base), members)
        cls.life_id = mapped_column(Integer, nullable=True)
        cls.__ttl__ = Follows(life, on={"life_id": "id"}, orphan="live")
        super().__init_subclass__(**kw)


class FollowingWorld(LivingWorld):
    """All rows, with parents that have their lifetimes."""

    mixin = Heading

    def give_lifetime(self, connection: Connection, table: Table, row: Row) -> None:
        """Put the parent, if the row follows one, and give that one the lifetime."""
        parent = self.lasting(table)
        if parent is not table:
            key = row.values["id"]
            connection.execute(parent.insert().values(id=key))
            connection.execute(table.update().where(table.c.id == key).values(life_id=key))
        super().give_lifetime(connection, parent, row)

    def lasting(self, table: Table) -> Table:
        """The table of the parents, if there are any."""
        following = following_of(table)
        return table if following is None else following.links().parent

"""The part of the schema whose foreign keys the databases enforce.

Rows of `Firm`, `Folder` and `Hall` live for ever. What refers to them is expired or not, by each
kind of key that may keep them from being deleted, and from getting another key.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import ForeignKey, ForeignKeyConstraint, MetaData, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

DAY = 86400

Key = Annotated[int, mapped_column(primary_key=True, autoincrement=False)]
Text = Annotated[str, mapped_column(String(40))]

ENFORCED = "enforced"
"""In the ``info`` of tables: their foreign keys are created."""


def declare_firms(mixin: type, base: Any) -> dict[str, Any]:
    """Declare what refers to firms: directly, from a subclass, from elsewhere, and by cascades."""

    class Enforced(base):
        __abstract__ = True
        __table_args__: Any = {"info": {ENFORCED: True}}

    class Firm(Enforced):
        __tablename__ = "firms"

        id: Mapped[Key]
        code: Mapped[str] = mapped_column(String(10), unique=True)
        name: Mapped[str | None] = mapped_column(String(10))
        visits = relationship("Visit")
        branches = relationship("Branch", passive_deletes=True)
        tickets = relationship("Ticket", cascade="all, delete-orphan")

    class Visit(mixin, Enforced, ttl=DAY):
        __tablename__ = "visits"

        id: Mapped[Key]
        firm_id: Mapped[int] = mapped_column(ForeignKey("firms.id"), index=True)

    class Badge(mixin, Enforced, ttl=DAY):
        """Refers to a unique value, not to the primary key."""

        __tablename__ = "badges"

        id: Mapped[Key]
        firm_code: Mapped[str] = mapped_column(String(10), ForeignKey("firms.code"), index=True)

    class Party(mixin, Enforced, ttl=DAY):
        __tablename__ = "parties"

        id: Mapped[Key]
        kind: Mapped[Text]
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "party"}

    class Caller(Party):
        """Refers from the table of a joined subclass, and is referred to there."""

        __tablename__ = "callers"

        id: Mapped[int] = mapped_column(
            ForeignKey("parties.id"), primary_key=True, autoincrement=False
        )
        host_id: Mapped[int | None] = mapped_column(ForeignKey("firms.id"), index=True)
        name: Mapped[str] = mapped_column(String(10), unique=True)
        __mapper_args__ = {"polymorphic_identity": "caller"}

    class Meal(mixin, Enforced, ttl=DAY):
        __tablename__ = "meals"

        id: Mapped[Key]
        caller_id: Mapped[int] = mapped_column(ForeignKey("callers.id"), index=True)

    class Branch(Enforced):
        """Goes with its firm, unless an expired desk holds it."""

        __tablename__ = "branches"

        id: Mapped[Key]
        firm_id: Mapped[int] = mapped_column(ForeignKey("firms.id", ondelete="CASCADE"), index=True)

    class Desk(mixin, Enforced, ttl=DAY):
        __tablename__ = "desks"

        id: Mapped[Key]
        branch_id: Mapped[int] = mapped_column(ForeignKey("branches.id"), index=True)

    class Ticket(mixin, Enforced, ttl=DAY):
        __tablename__ = "tickets"

        id: Mapped[Key]
        firm_id: Mapped[int] = mapped_column(ForeignKey("firms.id", ondelete="CASCADE"), index=True)

    class Reply(mixin, Enforced, ttl=DAY):
        __tablename__ = "replies"

        id: Mapped[Key]
        ticket_id: Mapped[int] = mapped_column(ForeignKey("tickets.id"), index=True)
        reply_id: Mapped[int | None] = mapped_column(ForeignKey("replies.id"), index=True)

    class Elsewhere(base):
        __abstract__ = True
        __table_args__: Any = {"info": {ENFORCED: True}}
        metadata = MetaData()

    class Permit(mixin, Elsewhere, ttl=DAY):
        """Is declared on another `MetaData`, in the same database."""

        __tablename__ = "permits"

        id: Mapped[Key]
        firm_id: Mapped[int] = mapped_column(ForeignKey(Firm.id), index=True)

    classes = (Firm, Visit, Badge, Party, Caller, Meal, Branch, Desk, Ticket, Reply, Permit)
    return {model.__name__: model for model in classes} | {"Elsewhere": Elsewhere}


def declare_folders(mixin: type, base: Any) -> dict[str, Any]:
    """Declare a tree that goes from its root on, and rows with keys of two columns."""

    class Folder(base):
        __tablename__ = "folders"
        __table_args__ = {"info": {ENFORCED: True}}

        id: Mapped[Key]
        parent_id: Mapped[int | None] = mapped_column(
            ForeignKey("folders.id", ondelete="CASCADE"), index=True
        )

    class Paper(mixin, base, ttl=DAY):
        __tablename__ = "papers"
        __table_args__ = {"info": {ENFORCED: True}}

        id: Mapped[Key]
        folder_id: Mapped[int] = mapped_column(ForeignKey("folders.id"), index=True)

    class Hall(base):
        __tablename__ = "halls"
        __table_args__ = {"info": {ENFORCED: True}}

        house: Mapped[Key]
        number: Mapped[Key]

    class Booking(mixin, base, ttl=DAY):
        __tablename__ = "bookings"
        __table_args__ = (
            ForeignKeyConstraint(
                ["house", "number"], ["halls.house", "halls.number"], name="booking_hall"
            ),
            {"info": {ENFORCED: True}},
        )

        id: Mapped[Key]
        house: Mapped[int]
        number: Mapped[int]

    class Album(mixin, base, ttl=DAY):
        """May get the key of an expired one, which the database hands on to its photos."""

        __tablename__ = "albums"
        __table_args__ = {"info": {ENFORCED: True}}

        id: Mapped[Key]

    class Photo(mixin, base, ttl=DAY):
        __tablename__ = "photos"
        __table_args__ = {"info": {ENFORCED: True}}

        id: Mapped[Key]
        album_id: Mapped[int] = mapped_column(
            ForeignKey("albums.id", onupdate="CASCADE"), index=True
        )

    classes = (Folder, Paper, Hall, Booking, Album, Photo)
    return {model.__name__: model for model in classes}

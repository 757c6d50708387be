"""What `ttl-odm check` says of cascades that delete rows which are archived, or reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import Archive, TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.sweeper import Purged

HOUR = 3_600


def hear(purged: Purged) -> None:
    """A hook."""


class Base(DeclarativeBase):
    pass


class Customer(Base):
    """Has no policy."""

    __tablename__ = "traced_customers"

    id: Mapped[int] = mapped_column(primary_key=True)


class Visit(TTLMixin, Base):
    __tablename__ = "traced_visits"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True)


class OldNote(Base):
    __tablename__ = "traced_old_notes"

    id: Mapped[int] = mapped_column(primary_key=True)


class Note(TTLMixin, Base):
    """Is archived, and has an answer's key of its own table."""

    __tablename__ = "traced_notes"
    __ttl__ = HOUR
    __ttl_archive__ = Archive(OldNote)

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(
        ForeignKey(Customer.id, ondelete="CASCADE"), index=True
    )
    visit_id: Mapped[int | None] = mapped_column(
        ForeignKey(Visit.id, ondelete="SET NULL"), index=True
    )
    answers_id: Mapped[int | None] = mapped_column(
        ForeignKey("traced_notes.id", ondelete="CASCADE"), index=True
    )


class Event(TTLMixin, Base):
    """Is reported to a hook, and has rows in two tables."""

    __tablename__ = "traced_events"
    __ttl__ = HOUR
    __ttl_on_purged__ = hear
    __ttl_purge__ = "orm"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "event"}

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))


class Call(Event):
    __tablename__ = "traced_calls"
    __mapper_args__ = {"polymorphic_identity": "call"}

    id: Mapped[int] = mapped_column(ForeignKey(Event.id, ondelete="CASCADE"), primary_key=True)
    visit_id: Mapped[int] = mapped_column(ForeignKey(Visit.id, ondelete="CASCADE"), index=True)


class Line(TTLMixin, Base):
    """Is not recorded at all."""

    __tablename__ = "traced_lines"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True)
    visit_id: Mapped[int] = mapped_column(ForeignKey(Visit.id, ondelete="CASCADE"), index=True)


def test_foreign_keys_that_delete_recorded_rows_are_named(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    url = engine.url.render_as_string(hide_password=False)
    arguments = ["check", "--app", f"{__name__}:Base", "--url", url, "--json"]
    finished = CliRunner().invoke(cli, arguments)
    assert finished.exit_code in (0, 1), finished.output
    findings: list[Any] = json.loads(finished.stdout)["findings"]
    assert "unreadable" not in {finding["code"] for finding in findings}, findings
    said = {
        (finding["target"], *finding["message"].split(" with ON DELETE CASCADE: "))
        for finding in findings
        if finding["code"] == "untraced-cascade"
    }
    lost = "a DELETE there by raw SQL or another program deletes rows here too, without their "
    assert said == {
        ("traced_notes", "traced_notes(customer_id) refers to traced_customers", f"{lost}archive"),
        ("traced_notes", "traced_notes(answers_id) refers to traced_notes", f"{lost}archive"),
        (
            "traced_events",
            "traced_calls(visit_id) refers to traced_visits",
            f"{lost}hooks and ORM events",
        ),
    }

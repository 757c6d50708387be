"""`sweep="database"` is not for tables whose cascades reach rows that are archived or reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.util.exc import CommandError
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.migrations.projects import lines
from tests.migrations.swept import bound, left, said_of_job
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.database_sweep.alembic.installation import install_job, job_statements
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy import Archive, TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.sweeper import Purged

pytestmark = [
    pytest.mark.databases("mariadb", "mysql", "postgres"),
    pytest.mark.usefixtures("scheduler"),
]

HOUR = 3600
ADD = "op.alter_ttl('crates', 3600, sweep='database')"
SAID = (
    r"would delete the rows of \S*{} by ON DELETE CASCADE, without the archive, hooks or ORM "
    r"events of their models\. Write sweep='index'"
)
recordings = pytest.mark.parametrize("recording", ["archive", "hook", "orm"])


def hear(purged: Purged) -> None:
    """A hook."""


def crates(recording: str | None, *, ondelete: str = "CASCADE", far: bool = False) -> Any:
    """Crates, and bottles that go with them; far ones lie in boxes, which have no policy."""

    class Base(DeclarativeBase):
        pass

    class Crate(TTLMixin, Base):
        __tablename__ = "crates"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Box(Base):
        __tablename__ = "boxes"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        crate_id: Mapped[int] = mapped_column(ForeignKey(Crate.id, ondelete="CASCADE"), index=True)

    class OldBottle(Base):
        __tablename__ = "old_bottles"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Bottle(TTLMixin, Base):
        __tablename__ = "bottles"
        __ttl__ = 2 * HOUR
        __ttl_archive__ = Archive(OldBottle) if recording == "archive" else None
        __ttl_on_purged__ = hear if recording == "hook" else None
        __ttl_purge__ = "orm" if recording == "orm" else "delete"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        holder_id: Mapped[int | None] = mapped_column(
            ForeignKey(Box.id if far else Crate.id, ondelete=ondelete), index=True
        )

    return Crate


@recordings
@pytest.mark.parametrize("far", [False, True])
def test_rows_that_would_go_without_a_trace_are_rejected(
    engine: Engine, project: Any, recording: str, *, far: bool
) -> None:
    crate = crates(recording, far=far)
    crate.metadata.create_all(engine)
    here = project(crate)
    here.revision(ADD)
    said = SAID.format(r"bottles\(holder_id\)")
    with pytest.raises(MigrationRefusedError, match=said):
        here.upgrade()
    with engine.connect() as connection:
        for function in (install_job, job_statements):
            with pytest.raises(MigrationRefusedError, match=said):
                function(connection, bound(crate))
            connection.rollback()
    assert left(engine) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recording", "ondelete"), [(None, "CASCADE"), ("archive", "SET NULL"), ("hook", "SET NULL")]
)
def test_what_is_not_recorded_or_does_not_cascade_is_swept(
    engine: Engine, project: Any, recording: str | None, ondelete: str
) -> None:
    crate = crates(recording, ondelete=ondelete)
    crate.metadata.create_all(engine)
    here = project(crate)
    here.revision(ADD)
    here.upgrade()
    here.check()
    assert said_of_job(engine, crate, "cascades") == []
    here.downgrade()


@pytest.mark.slow
@recordings
@pytest.mark.parametrize("far", [False, True])
def test_a_job_that_was_there_before_the_archive_is_found_and_removed(
    engine: Engine, project: Any, recording: str, *, far: bool
) -> None:
    before = crates(None, far=far)
    before.metadata.create_all(engine)
    here = project(before)
    here.revision(ADD)
    here.upgrade()
    here.check()
    crate = crates(recording, far=far)
    here.metadata = crate.metadata
    (message,) = said_of_job(engine, crate, "cascades")
    assert "bottles(holder_id) by ON DELETE CASCADE, without the archive, hooks" in message
    with pytest.raises(CommandError, match="alter_ttl"):
        here.check()
    up, _ = lines(here.autogenerate())
    assert up == ["op.alter_ttl('crates', 3600, sweep='index')"]
    here.upgrade()
    here.check()
    with engine.connect() as connection:
        assert read_job(connection, None, "crates") is None
    assert left(engine) == []
    here.downgrade()


@pytest.mark.slow
def test_a_table_to_come_that_is_archived_removes_the_job(engine: Engine, project: Any) -> None:
    before = crates(None)
    table = before.__table__
    table.create(engine)
    here = project(before)
    here.metadata = table.to_metadata(type(before.metadata)()).metadata
    here.revision(ADD)
    here.upgrade()
    here.metadata = crates("archive").metadata
    up, _ = lines(here.autogenerate())
    assert up[-1] == "op.alter_ttl('crates', 3600, sweep='index')"
    here.upgrade()
    here.check()
    assert left(engine) == []

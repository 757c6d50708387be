"""What batches say they took their time for, on each database."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, Integer, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.cli.running import as_json, run
from tests.sql.sweeping import HOUR, add
from ttl_odm.sqlalchemy import Archive, TTLMixin
from ttl_odm.sweeper import Hook, Progress, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Job(TTLMixin, Base):
    __tablename__ = "jobs"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


_ID = Column("id", Integer, primary_key=True, autoincrement=False)
OLD_JOBS = Table("old_jobs", Base.metadata, _ID)


class Kept(TTLMixin, Base):
    __tablename__ = "kept"
    __ttl__ = HOUR
    __ttl_archive__ = Archive(OLD_JOBS)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


def swept(engine: Engine, model: Any, **options: Any) -> Progress:
    """The one batch of a sweep."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, model.__tablename__, [(key, None, 2 * HOUR) for key in range(5)])
    told: list[Progress] = []
    report = Sweeper(engine, [model], on_progress=told.append, **options).run_once()
    assert (report.deleted, report.problems) == (5, ())
    return next(each for each in told if each.deleted)


def test_a_plain_batch_looks_deletes_and_commits(engine: Engine) -> None:
    batch = swept(engine, Job)
    assert set(batch.phases) == {"find", "delete", "commit"}
    assert abs(sum(batch.phases.values()) - batch.elapsed) < 1e-9
    assert all(seconds > 0 for seconds in batch.phases.values())


def test_archiving_and_hooks_have_phases_of_their_own(engine: Engine) -> None:
    hooks = [Hook(lambda _: None), Hook(lambda _: None, when="commit")]
    batch = swept(engine, Kept, on_purged=hooks)
    assert set(batch.phases) == {"find", "delete", "archive", "hook", "commit", "after_commit"}


@pytest.mark.slow
def test_a_batch_of_documents_has_them_too(mongodb: Any) -> None:
    url, database = mongodb
    born = datetime.now(timezone.utc) - timedelta(hours=2)
    database["events"].insert_many([{"_id": key, "_ts": born} for key in range(7)])
    finished = run("sweep", "--app", "tests.metrics.documents:hooked", "--json", EVENTS_URL=url)
    assert as_json(finished)["deleted"] == 7
    assert finished.stderr.split() == sorted(["after_commit", "commit", "delete", "find", "hook"])

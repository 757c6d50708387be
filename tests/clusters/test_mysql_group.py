"""MySQL Group Replication: sweeps through an election, and batches that conflict with a member."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.clusters.members import running, until
from tests.clusters.mysql import (
    EXPIRED,
    LIVE,
    PACE,
    engine_on,
    engine_on_primary,
    fill,
    has_carts,
    renew,
    seen,
    stored,
)
from tests.faults.carts import HOUR, cart
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Ending, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.sweeper import Progress, Purged

pytestmark = [pytest.mark.slow, pytest.mark.starts("mysql")]

CONFLICT = 3101
"""The error of a COMMIT that the group rejects."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with running("mysql_group", "MYSQL_GROUP") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def equals() -> Iterator[Any]:
    """Run a group whose members all take writes."""
    with running("mysql_group", "MYSQL_GROUP_MULTI") as cluster:
        yield cluster


def test_a_sweep_goes_on_with_the_member_that_the_group_elects(group: Any) -> None:
    model = cart("")
    killed: list[Any] = []

    def kill(_: Progress) -> None:
        if not killed:
            killed.append(group.primary())
            group.kill(*killed)

    with engine_on_primary(group) as engine:
        fill(engine, model)
        report = Sweeper(engine, model, pace=PACE, on_progress=kill).run_once()
        assert not report.problems
        assert report.ended is Ending.FINISHED
        assert stored(engine, model) == seen(engine, model) == set(LIVE)
    group.start(*killed)
    with engine_on(*killed) as former:
        until(lambda: stored(former, model) == set(LIVE))


def test_a_frozen_primary_is_replaced_and_comes_back_as_a_secondary(group: Any) -> None:
    model = cart("")
    frozen = group.primary()
    with engine_on_primary(group) as engine:
        fill(engine, model)
    group.freeze(frozen)
    try:
        with engine_on(group.primary()) as engine:
            Sweeper(engine, model, pace=PACE, lease=False).run_once().raise_for_failures()
            assert stored(engine, model) == set(LIVE)
    finally:
        group.thaw(frozen)
    assert frozen in group.replicas()
    with engine_on(frozen) as former:
        until(lambda: stored(former, model) == set(LIVE))


@pytest.mark.parametrize("lease", [True, False])
def test_a_sweeper_of_a_secondary_reports_in_one_line_that_it_takes_no_writes(
    group: Any, *, lease: bool
) -> None:
    model = cart("")
    with engine_on_primary(group) as primary, engine_on(group.replicas()[0]) as secondary:
        fill(primary, model)
        until(lambda: has_carts(secondary, {*EXPIRED, *LIVE}, model))
        assert seen(secondary, model) == seen(primary, model) == set(LIVE)
        report = Sweeper(secondary, model, lease=lease, standby="exit").run_once()
        assert (report.outcome, report.problems, report.deleted) == ("standby", (), 0)
        assert stored(primary, model) == {*EXPIRED, *LIVE}


def test_a_batch_that_conflicts_with_a_renewal_on_another_member_is_tried_again(
    equals: Any,
) -> None:
    renewed = 7
    first, second = equals.primary(), equals.replicas()[0]

    with ExitStack() as stack:
        engine, other = (stack.enter_context(engine_on(member)) for member in (first, second))
        fill(engine, cart(""))
        until(lambda: has_carts(other, {*EXPIRED, *LIVE}, cart("")))
        renewal = stack.enter_context(other.connect())
        blocker = stack.enter_context(engine.connect())

        class Base(DeclarativeBase):
            pass

        class Cart(TTLMixin, Base):
            __tablename__ = "carts"
            __ttl__ = HOUR

            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

            @staticmethod
            def __ttl_on_purged__(purged: Purged) -> None:
                """Let the renewal be committed after the batch has deleted its row."""
                if (renewed,) in purged.keys:
                    renewal.commit()

        met: list[object] = []

        @event.listens_for(engine, "handle_error")
        def go_on(context: Any) -> None:
            """Let the renewal arrive at this member after the batch was rejected."""
            code = context.original_exception.args[0]
            if code == CONFLICT:
                met.append(code)
                blocker.execute(text("UNLOCK TABLES"))
                until(lambda: renewed in seen(engine, Cart))

        # An applier that comes upon the batch's locks would end it as a deadlock.
        blocker.execute(text("LOCK TABLES blockers WRITE"))
        renewal.execute(text("INSERT INTO blockers VALUES (1)"))
        renew(renewal, renewed)
        report = Sweeper(engine, Cart, pace=PACE).run_once()
        report.raise_for_failures()
        assert met == [CONFLICT]
        assert report.deleted == len(EXPIRED) - 1
        kept = {renewed, *LIVE}
        assert stored(engine, Cart) == seen(engine, Cart) == kept
        until(lambda: stored(other, Cart) == kept)

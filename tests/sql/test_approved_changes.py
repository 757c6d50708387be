"""A stored default changes as its preview said, or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, func, select, text
from sqlalchemy.orm import Session

from tests.cli.shop import Cart
from tests.guard import GUARD
from tests.sql.sweeping import add
from tests.sql.test_stored_scopes import TENANTS, World
from ttl_odm import InvalidTTL, TTLConfigurationError
from ttl_odm.forecast.change import NotApprovedError, approve_policy, preview_policy
from ttl_odm.sqlalchemy import include_expired, policy_changes, set_policy, stored_policies

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend
    from ttl_odm.forecast.change import PolicyPreview

HOUR, DAY = 3_600, 86_400


@pytest.fixture(params=TENANTS)
def world(engine: Engine, request: pytest.FixtureRequest) -> World:
    """Rows of 100 seconds: of three tenants and of none; by the default, and with ttl 50 and -1."""
    return World(engine, request.param, least=10, most=365 * DAY)


def seen(world: World, ttl: Any, scope: Any = None, **options: Any) -> PolicyPreview:
    with world.engine.connect() as connection:
        return preview_policy(connection, world.model, ttl, scope=scope, **options)


def approved(world: World, ttl: Any, token: str, scope: Any = None) -> None:
    with world.engine.connect() as connection:
        approve_policy(
            connection, world.model, ttl, token=token, scope=scope, by="ann", reason="the audit"
        )


def stored(world: World) -> dict[str | None, int | None]:
    with world.engine.connect() as connection:
        return {row.scope: row.ttl for row in stored_policies(connection, world.model)}


def visible(world: World) -> int:
    with Session(world.engine) as session:
        return session.scalar(select(func.count()).select_from(world.model)) or 0


def test_a_preview_counts_what_would_expire_and_is_kept_to(world: World) -> None:
    before = visible(world)
    preview = seen(world, 60)
    assert (preview.before, preview.after, preview.scope) == (HOUR, 60, None)
    assert preview.forecast.rows == 12
    assert preview.forecast.lost.rows == preview.at_most == 4  # those that inherit
    assert preview.token.startswith("4-")
    assert (visible(world), stored(world)) == (before, stored(world))
    approved(world, 60, preview.token)
    assert visible(world) == before - 4
    with world.engine.connect() as connection:
        (change,) = policy_changes(connection, world.model)
    assert (change.ttl_before, change.ttl_after) == (HOUR, 60)
    assert (change.changed_by, change.reason) == ("ann", "the audit")


def test_a_preview_of_a_tenant_is_about_its_rows_alone(world: World) -> None:
    before, (first, second, _) = visible(world), world.tenants
    preview = seen(world, 60, first)
    assert (preview.forecast.rows, preview.at_most) == (3, 1)
    approved(world, 60, preview.token, first)
    assert visible(world) == before - 1
    # The others' default is about those that have none of their own.
    rest = seen(world, 60)
    assert (rest.forecast.rows, rest.at_most) == (9, 3)
    with pytest.raises(NotApprovedError):
        approved(world, 60, rest.token, second)
    back = seen(world, HOUR, first)
    assert (back.before, back.at_most, back.forecast.revived.rows) == (60, 0, 1)


def test_that_a_tenant_has_no_default_of_its_own_any_more_is_previewed(world: World) -> None:
    before, (first, *_) = visible(world), world.tenants
    approved(world, 60, seen(world, 60, first).token, first)
    assert visible(world) == before - 1
    preview = seen(world, "default", first)
    assert (preview.before, preview.after, preview.at_most) == (60, 0, 0)
    assert preview.forecast.revived.rows == 1
    same = seen(world, HOUR, first)
    with pytest.raises(NotApprovedError):  # it would be the tenant's own
        approved(world, "default", same.token, first)
    approved(world, "default", preview.token, first)
    assert visible(world) == before


def test_what_would_expire_within_the_hour_is_approved_too(world: World) -> None:
    preview = seen(world, 200)
    assert preview.forecast.lost.rows == 0
    assert preview.at_most == 4
    approved(world, 200, preview.token)
    assert stored(world)[next(iter(stored(world)))] == 200


def test_more_rows_than_the_preview_said_are_refused(world: World) -> None:
    preview = seen(world, 60)
    with world.engine.begin() as connection:
        add(connection, "messages", [("late", None, 70)])
    before, defaults = visible(world), stored(world)
    with pytest.raises(NotApprovedError, match="more than the 4 rows that the preview"):
        approved(world, 60, preview.token)
    assert (visible(world), stored(world)) == (before, defaults)
    approved(world, 60, seen(world, 60).token)
    assert visible(world) == before - 5


@pytest.mark.parametrize("token", ["", "4", "4-", "0-0000000000", "-1-00", "9" * 30, "x-1", "٤-1"])
def test_no_other_token_will_do(world: World, token: str) -> None:
    defaults = stored(world)
    with pytest.raises(NotApprovedError, match="Preview it again"):
        approved(world, 60, token)
    assert stored(world) == defaults


def test_a_token_is_of_one_change(world: World) -> None:
    preview = seen(world, 60)
    with pytest.raises(NotApprovedError, match="is not for this change"):
        approved(world, 61, preview.token)
    with world.engine.connect() as connection:
        set_policy(connection, world.model, DAY, by="bob")
    with pytest.raises(NotApprovedError, match="the default has changed since"):
        approved(world, 60, preview.token)
    number, _, digest = preview.token.partition("-")
    with pytest.raises(NotApprovedError):
        approved(world, 60, f"{int(number) + 1}-{digest}")


@pytest.mark.parametrize("scope", [0, None])
def test_a_token_is_used_once(world: World, scope: int | None) -> None:
    """Also where the default has been set back since to what it was."""
    whose = None if scope is None else world.tenants[scope]
    preview = seen(world, 60, whose)
    approved(world, 60, preview.token, whose)
    back = HOUR if scope is None else "default"
    with world.engine.connect() as connection:
        set_policy(connection, world.model, back, scope=whose, by="bob")
    assert seen(world, 60, whose).at_most == preview.at_most
    with pytest.raises(NotApprovedError, match="by this token or otherwise"):
        approved(world, 60, preview.token, whose)
    approved(world, 60, seen(world, 60, whose).token, whose)


def test_only_a_preview_makes_a_token_that_is_signed(world: World) -> None:
    engine, model = world.engine, world.model
    with engine.connect() as connection:
        plain = preview_policy(connection, model, 60).token
        signed = preview_policy(connection, model, 60, secret="ours").token
        connection.rollback()
        other = signed[:-1] + ("0" if signed[-1] != "0" else "1")
        forged = [plain, signed.replace("4-", "400-"), f"{signed}0", signed[:-1], other]
        if signed.upper() != signed:  # one in 1,843 has no letters
            forged.append(signed.upper())
        for secret, tokens in (("ours", forged), ("others", [signed, plain]), (None, [signed])):
            for token in tokens:
                with pytest.raises(NotApprovedError, match="is not for this change"):
                    approve_policy(connection, model, 60, token=token, by="eve", secret=secret)
        approve_policy(connection, model, 60, token=signed, by="ann", secret=b"ours")
    assert stored(world) == {None: 60}


@pytest.mark.slow
@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("scope", [0, None])
@pytest.mark.parametrize("begun", [True, False])
def test_of_many_approvals_at_once_one_wins(
    engine: Engine, backend: Backend, scope: int | None, *, begun: bool, is_strict: bool
) -> None:
    world = World(engine, "text")
    if not begun:
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM ttl_odm_policies"))
    whose = None if scope is None else world.tenants[scope]
    previews = {ttl: seen(world, ttl, whose) for ttl in range(60, 68)}
    assert backend.sync_url is not None
    waiting = {"timeout": GUARD} if backend.sync_url.startswith("sqlite") else {}
    crowd = create_engine(backend.sync_url, pool_size=len(previews), connect_args=waiting)
    if is_strict and engine.dialect.name == "sqlite":
        event.listen(crowd, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    elif is_strict:
        crowd = crowd.execution_options(isolation_level="SERIALIZABLE")
    barrier = threading.Barrier(len(previews))

    def approve(ttl: int) -> int | Exception:
        with crowd.connect() as connection:
            barrier.wait(GUARD)
            token = previews[ttl].token
            try:
                approve_policy(connection, world.model, ttl, token=token, scope=whose, by="ann")
            except Exception as error:  # noqa: BLE001 (which are then looked at)
                return error
        return ttl

    with ThreadPoolExecutor(len(previews)) as pool:
        outcomes = list(pool.map(approve, previews))
    crowd.dispose()
    winners = [ttl for ttl in outcomes if isinstance(ttl, int)]
    losers = [error for error in outcomes if isinstance(error, Exception)]
    assert len(winners) == 1, outcomes
    assert {type(error) for error in losers} == {NotApprovedError}, outcomes
    assert stored(world)[whose and str(whose)] == winners[0]
    with engine.connect() as connection:
        assert len(policy_changes(connection)) == 1


def test_it_is_a_part_of_a_transaction_that_there_is(world: World) -> None:
    preview = seen(world, 60)
    before = visible(world)
    with world.engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        approve_policy(connection, world.model, 60, token=preview.token, by="ann")
        connection.rollback()
    assert visible(world) == before
    with world.engine.begin() as connection:
        with pytest.raises(NotApprovedError):
            approve_policy(connection, world.model, 61, token=preview.token, by="ann")
        add(connection, "messages", [("new", -1, 0)])
    assert visible(world) == before + 1


def test_off_and_never_are_previewed(world: World) -> None:
    for ttl in (None, -1):
        with pytest.raises(InvalidTTL, match=r"Message\.__ttl__ = .*: the most is"):
            seen(world, ttl)


def test_what_is_not_stored_has_no_preview(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(TTLConfigurationError, match="isn't stored"):
        preview_policy(connection, Cart, 60)


@pytest.mark.parametrize("deep", [False, True])
def test_of_many_rows_a_sample_is_taken(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, deep: bool
) -> None:
    monkeypatch.setattr("ttl_odm.stored.sqlalchemy.previews.SMALL", 100)
    world = World(engine, "number")
    with engine.begin() as connection:
        add(connection, "messages", [(f"n{number}", None, 100) for number in range(400)])
    with Session(engine) as session:
        rows = session.scalar(select(func.count(world.model.id)).options(include_expired()))
    preview = seen(world, 60, deep=deep)
    assert rows == 412
    assert preview.forecast.measured.is_sample is not deep
    assert preview.at_most >= 404  # with its error
    approved(world, 60, preview.token)

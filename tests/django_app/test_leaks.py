"""Every path that Django has, with expired rows there and with them deleted for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, models, transaction

from tests.django_app import data
from tests.django_app.paths_reads import READS
from tests.django_app.paths_writes import WRITES
from tests.django_app.shop.models import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backends import Backend

PATHS = {**READS, **WRITES}


@pytest.mark.slow
def test_no_path_tells_expired_rows_from_deleted_ones(backend: Backend) -> None:
    """One test for all paths of a database: the rows are written once, and each path undone."""
    data.fill()
    wrong = {
        name: found for name, path in PATHS.items() if (found := _difference(path)) is not None
    }
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())
    assert len(PATHS) > 150


def _difference(path: Callable[[], Any]) -> str | None:
    with_dead = _run(path)
    without = _run(path, before=data.bury)
    if with_dead == without:
        return None
    tables = [name for name in without[1] if with_dead[1].get(name) != without[1][name]]
    told = "" if with_dead[0] == without[0] else f"{with_dead[0]!r} instead of {without[0]!r}"
    rows = [f"{name}: {with_dead[1][name]} instead of {without[1][name]}" for name in tables]
    return "\n    ".join([told, *rows])


def _run(path: Callable[[], Any], before: Callable[[], None] | None = None) -> Any:
    with transaction.atomic():
        if before is not None:
            before()
        try:
            with transaction.atomic():
                told = _plain(path())
        except Exception as error:  # noqa: BLE001 (which one it is is compared)
            told = _kind(error)
        with connection.constraint_checks_disabled():
            rows = data.dump()
        transaction.set_rollback(True)
    return told, rows


def _kind(error: Exception) -> str:
    return "DoesNotExist" if "DoesNotExist" in str(type(error).__mro__) else type(error).__name__


def _plain(value: Any) -> Any:
    if isinstance(value, models.Model):
        return type(value).__name__, value.pk
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


def test_the_oracle_notices_a_path_that_reads_past_the_gate(backend: Backend) -> None:
    data.fill()
    assert _difference(Session.all_objects.count) is not None
    assert _difference(Session.objects.count) is None

"""Families of databases that other distributions bring: what is found, and what is refused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ttl_odm import TTLConfigurationError
from ttl_odm.dialects import General, errors
from ttl_odm.dialects.families import brought_family
from ttl_odm.dialects.family import ErrorCodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FAMILY = """
from ttl_odm.dialects import General

class Moon(General):
    names = ("moonbase",)
    at_read = at_write = "moon_time()"
    def microseconds(self, moment): return f"us({moment})"
    def clock_face(self, microseconds): return f"face({microseconds})"
    def is_iso(self, column): return f"is_iso({column})"

class Crater(General):
    names = ("moonbase",)

class Sea(Moon):
    names = ("seabase",)

class Twin(Moon):
    names = ("moonbase", "sqlite")

rocks = 5
"""


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a distribution with such an entry point for ``moonbase``."""
    (tmp_path / "moon_family.py").write_text(FAMILY)
    (tmp_path / "broken_family.py").write_text("import no_such_driver")
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(value: str, distribution: str = "moon") -> None:
        info = tmp_path / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[ttl_odm.dialects]\nmoonbase = {value}\n")
        brought_family.cache_clear()

    yield install
    brought_family.cache_clear()
    sys.modules.pop("moon_family", None)


def test_a_family_is_found_by_the_name_of_its_dialect(bring: Callable[..., None]) -> None:
    bring("moon_family:Moon")
    family = brought_family("moonbase")
    assert family is not None
    assert family.__name__ == "Moon"
    assert family().now == "us(moon_time())"
    assert brought_family("marsbase") is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("broken_family:Moon", "can't be loaded.*no_such_driver"),
        ("moon_family:Venus", "can't be loaded.*Venus"),
        ("moon_family:rocks", "it is 5, not a subclass of ttl_odm.dialects.Family"),
        ("moon_family:Crater", "Crater lacks .*clock_face, is_iso, microseconds"),
        ("moon_family:Sea", r"Sea.names is \('seabase',\), but must contain 'moonbase'"),
        ("moon_family:Twin", "no dialect that ttl_odm itself supports"),
    ],
)
def test_one_that_can_not_be_used_is_refused_by_name(
    bring: Callable[..., None], value: str, message: str
) -> None:
    bring(value)
    with pytest.raises(TTLConfigurationError, match=message) as refused:
        brought_family("moonbase")
    named = f"The entry point moonbase = {value!r} (ttl_odm.dialects of moon)"
    assert str(refused.value).startswith(named)


def test_two_for_one_dialect_are_refused(bring: Callable[..., None]) -> None:
    bring("moon_family:Moon")
    bring("moon_family:Sea", "sea")
    with pytest.raises(TTLConfigurationError, match=r"of moon.* and .*of sea.*Uninstall all"):
        brought_family("moonbase")


def test_a_family_says_what_the_errors_of_its_driver_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(General):
        names = ("busy",)
        at_read = at_write = "now()"
        driver = __name__.partition(".")[0]
        errors = ErrorCodes(
            locked=frozenset({"Held"}),
            away=frozenset({"Gone"}),
            missing_table=frozenset({"Missing"}),
            restricted=frozenset({"Kept"}),
        )

        def microseconds(self, moment: str) -> str:
            return moment

        def clock_face(self, microseconds: str) -> str:
            return microseconds

        def is_iso(self, column: str) -> str:
            return column

    class Held(Exception): ...  # noqa: N818

    class Gone(Exception): ...  # noqa: N818

    class Missing(Exception): ...  # noqa: N818

    class Kept(Exception): ...  # noqa: N818

    monkeypatch.setattr(errors, "_by_driver", {})
    assert not errors.is_locked(Held())
    errors.heed(Busy())
    assert errors.is_locked(Held())
    assert errors.is_passing(Held(), operational=False)
    assert errors.is_away(Gone(), operational=False)
    assert not errors.is_away(Held(), operational=True)
    assert errors.is_missing_table(Missing())
    assert errors.is_restricted(Kept())
    assert errors.is_refused(Kept(), of_data=False)
    assert not errors.is_refused(Held(), of_data=False)

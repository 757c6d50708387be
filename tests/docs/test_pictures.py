"""The pictures of what an operator sees show what the programs show today."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.browsers import TOOLS, in_venv_only, program

STATIC = Path(__file__).parents[2] / "docs" / "_static"
PICTURES = ("policy-prompt.svg", "policy-admin.svg", "policy-flask.svg", "sweep.svg", "plan.svg")
DASHBOARD = "dashboard.svg"
DURATION = re.compile(r"(<\s)?(\d[\d.,]*\s(d|h|min|s)\b\s?)+")


def words(source: str) -> list[str]:
    """The words of a picture, without the numbers, dates, bars and tokens of one run."""
    texts = re.findall(r"<(?:text|desc)[^>]*>([^<]*)</", source)
    text = DURATION.sub("N ", html.unescape(" ".join(texts)))
    return [re.sub(r"\d\S*|━+", "N", word) for word in text.split()]


@pytest.mark.slow
@in_venv_only
def test_the_pictures_show_what_the_programs_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    import pictures

    drawn = pictures.drawn(program())
    assert set(drawn) == set(PICTURES)
    for name, source in drawn.items():
        assert_is_up_to_date(name, source)


@pytest.mark.slow
@in_venv_only
def test_the_dashboard_is_drawn_as_its_file_and_prometheus_are_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    promtool = program("PROMTOOL")
    if not Path(promtool).with_name("prometheus").exists():
        pytest.skip("promtool comes without Prometheus")
    monkeypatch.syspath_prepend(TOOLS)
    import dashboard

    assert_is_up_to_date(DASHBOARD, dashboard.dashboard(promtool))


def assert_is_up_to_date(name: str, source: str) -> None:
    then = (STATIC / name).read_text(encoding="utf-8")
    assert words(then) == words(source), "run: .venv/bin/python tools/pictures.py"
    assert len(words(then)) > 50


@pytest.mark.parametrize("name", [*PICTURES, DASHBOARD])
def test_a_picture_needs_nothing_of_another_host(name: str) -> None:
    source = (STATIC / name).read_text(encoding="utf-8")
    assert re.findall(r'(?:href|src)="(?!data:|#)|url\((?!#)|@import|<script', source) == []
    assert "prefers-color-scheme: dark" in source

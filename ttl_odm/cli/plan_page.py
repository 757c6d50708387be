"""The page of `ttl-odm plan --html`: a single file without references, so it can be mailed."""

from __future__ import annotations

from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.forecast import Estimate, Forecast

_COLORS: Final = ("#3b6ea5", "#d9822b")
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1e21; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .3rem 1rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: nowrap }
code { background: #f2f3f5; padding: .1rem .3rem; border-radius: 3px }
.bars { display: grid; grid-template-columns: fit-content(35%) 1fr; gap: .7rem 1rem;
  align-items: center; margin: 1rem 0; font-size: .875rem; line-height: 1.2 }
.bars p { display: flex; align-items: center; gap: .4rem; margin: 0; min-height: 1.25rem }
.bars b { flex: none; height: 1.05rem }
.warn { border-left: 4px solid #d9822b; padding: .2rem 1rem; background: #fdf3e7 }
.quiet { color: #666 }
@media (prefers-color-scheme: dark) {
  body { color: #e4e6eb; background: #18191a } code { background: #2a2b2d }
  .warn { background: #33281a } th, td { border-color: #3a3b3c } .quiet { color: #aaa } }
"""


def page(forecast: Forecast) -> str:
    """Return the page."""
    title = escape(f"{forecast.model}: what expires")
    scenarios = list(forecast.scenarios.items())
    expired = [forecast.expired(name) for name, _ in scenarios]
    legend = " ".join(
        f'<span style="color:{color}">&#9632;</span> {name} <code>{escape(policy)}</code>'
        for color, (name, policy) in zip(_COLORS, scenarios, strict=False)
    )
    warnings = "".join(f'<p class="warn">{escape(text)}</p>' for text in forecast.sentences)
    own = f"; {forecast.own} with a ttl of their own" if forecast.own.rows else ""
    about = (
        f"Table <code>{escape(forecast.target)}</code>, "
        f"{escape(f'{forecast.measured.rows} rows{own}')}."
    )
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{about}</p>{warnings}"
        f"<h2>Expired rows, if nobody writes</h2><p>{legend}</p>{_bars(expired, forecast.rows)}"
        f"{_table(_columns(forecast))}{_scopes(forecast.scopes)}"
        f"<h2>{escape(forecast.heading.rstrip(':'))}</h2>{_bars([forecast.histogram()], None)}"
        f'<p class="quiet">{escape(forecast.note)} Made by ttl-odm plan, {now}.</p>'
        "</body></html>\n"
    )


def _bars(groups: Sequence[Sequence[tuple[str, Estimate]]], whole: int | None) -> str:
    """Return horizontal bars: for each label, one bar per group."""
    most = whole or max((bar.rows for group in groups for _, bar in group), default=1) or 1
    texts = [
        [f"{estimate}{f' ({estimate.rows / whole:.1%})' if whole else ''}" for _, estimate in group]
        for group in groups
    ]
    # The longest bar leaves room for the longest number, on a phone too.
    room = max((len(text) for group in texts for text in group), default=0) + 2
    parts = []
    for position, cells in enumerate(zip(*groups, strict=True)):
        bars = []
        for number, (_, estimate) in enumerate(cells):
            share = max(min(estimate.rows / most, 1), 0)
            bars.append(
                f'<p><b style="background:{_COLORS[number]};'
                f'width:max(0px, (100% - {room}ch) * {share:.4f})"></b>'
                f"{escape(texts[number][position])}</p>"
            )
        parts.append(f"<span>{escape(cells[0][0])}</span><div>{''.join(bars)}</div>")
    return f'<div class="bars">{"".join(parts)}</div>'


def _columns(forecast: Forecast) -> Mapping[str, Sequence[tuple[str, Estimate]]]:
    """Return the table's columns by their heads: each policy, and the followers under the last."""
    columns = {name: forecast.expired(name) for name in forecast.scenarios}
    if forecast.measured.has_followers:
        columns["followers"] = forecast.followers(list(forecast.scenarios)[-1])
    return columns


def _table(columns: Mapping[str, Sequence[tuple[str, Estimate]]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = "".join(
        f"<tr><td>{escape(cells[0][0])}</td>"
        + "".join(f"<td>{escape(str(estimate))}</td>" for _, estimate in cells)
        + "</tr>"
        for cells in zip(*columns.values(), strict=True)
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _scopes(table: Sequence[tuple[str, ...]]) -> str:
    """Return the table of scopes; empty without scopes."""
    if not table:
        return ""
    head, *rows = table
    cells = [("th", head), *(("td", row) for row in rows)]
    lines = "".join(
        "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in row) + "</tr>"
        for tag, row in cells
    )
    return f"<h2>Expired rows by scope</h2><table>{lines}</table>"

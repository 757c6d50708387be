"""What a forecast says to people, whoever shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.forecasting.forecast import Estimate, Forecast


def table(forecast: Forecast) -> list[tuple[str, ...]]:
    """Return rows, of which the first is the head: what is expired now and later."""
    current = forecast.expired("current")
    if forecast.planned is None:
        rows: list[tuple[str, ...]] = [("expired", "current", "share")]
        rows += [(label, str(each), _share(each, forecast)) for label, each in current]
        return rows
    rows = [("expired", "current", "planned", "share")]
    rows += [
        (label, str(before), str(after), _share(after, forecast))
        for (label, before), (_, after) in zip(current, forecast.expired("planned"), strict=True)
    ]
    return rows


def sentences(forecast: Forecast) -> list[str]:
    """Say what the plan would change at once."""
    if forecast.planned is None:
        return []
    said = []
    if forecast.lost.rows:
        said.append(
            f"Live rows that would be expired at once, and deleted by the next sweep: "
            f"{forecast.lost}."
        )
    if forecast.revived.rows:
        said.append(
            f"Expired rows, still there, that would be visible again: {forecast.revived}. Sweep "
            "first if they are to stay away."
        )
    return said or ["Nothing would change at once."]


def note(forecast: Forecast) -> str:
    """Say how the numbers came about."""
    if forecast.measured.total is None:
        return f"All {forecast.rows:,} rows were counted."
    return (
        f"Estimated from {forecast.measured.sampled:,} of about {forecast.rows:,} rows; "
        "± is the error (95 %)."
    )


def _share(each: Estimate, forecast: Forecast) -> str:
    return f"{each.rows / forecast.rows:.1%}" if forecast.rows else "-"

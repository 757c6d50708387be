"""What a forecast says to people, whoever shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.forecast.estimates import Estimate
    from ttl_odm.forecast.forecast import Forecast


def table(forecast: Forecast) -> list[tuple[str, ...]]:
    """Return rows, of which the first is the head: what is expired now and later.

    The share is that of the planned policy, if there is one.
    """
    names = list(forecast.scenarios)
    columns = [forecast.expired(name) for name in names]
    rows: list[tuple[str, ...]] = [("expired", *names, "share")]
    for cells in zip(*columns, strict=True):
        numbers = [each for _, each in cells]
        rows.append((cells[0][0], *map(str, numbers), _share(numbers[-1], forecast)))
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
    if said:
        return said
    unseen = max(forecast.lost.margin, forecast.revived.margin)
    if unseen:  # a sample can't say that there are none
        return [f"No row of the sample would change at once; of all rows, fewer than {unseen:,}."]
    return ["Nothing would change at once."]


def named(forecast: Forecast) -> str:
    """Say what it is about: the model, and its table."""
    table = f" ({forecast.target})" if forecast.model != forecast.target else ""
    return f"{forecast.model}{table}"


def heading(forecast: Forecast) -> str:
    """Say what the histogram shows."""
    what = "Rows by" if min(forecast.bounds) < 0 else "Age of the rows by"
    return f"{what} {forecast.field}:"


def note(forecast: Forecast) -> str:
    """Say how the numbers came about."""
    if not forecast.measured.is_sample:
        return f"All {forecast.rows:,} rows were counted."
    return (
        f"Estimated from {forecast.measured.sampled:,} of about {forecast.rows:,} rows; "
        "± is the error (95 %)."
    )


def _share(each: Estimate, forecast: Forecast) -> str:
    return f"{each.rows / forecast.rows:.1%}" if forecast.rows else "-"

"""What expires when, by the policy as it is and by another that is only planned.

The command lines (`ttl-odm plan`, ``flask ttl plan``) show it; this package must not know them.
`sql` (by way of `sampling`) and `mongodb` count, and need their extras; the rest is pure.
"""

from ttl_odm.forecast.estimates import Drawn, Estimate, Measured
from ttl_odm.forecast.forecast import AGES, AHEAD, Forecast
from ttl_odm.forecast.parse import parse_policy
from ttl_odm.forecast.planning import bounds_for, forecast_of, planned_policy
from ttl_odm.forecast.text import heading, named, note, sentences, table

__all__ = [
    "AGES",
    "AHEAD",
    "Drawn",
    "Estimate",
    "Forecast",
    "Measured",
    "bounds_for",
    "forecast_of",
    "heading",
    "named",
    "note",
    "parse_policy",
    "planned_policy",
    "sentences",
    "table",
]

"""What expires when, by the policy as it is and by another that is only planned.

The command lines (`ttl-odm plan`, ``flask ttl plan``) show it; this package must not know them.
`sql` (by way of `sampling`) and `mongodb` count, and need their extras; the rest is pure.
"""

from ttl_odm.forecasting.forecast import AGES, AHEAD, Forecast
from ttl_odm.forecasting.measured import Drawn, Estimate, Measured
from ttl_odm.forecasting.planning import bounds_for, forecast_of, planned_policy
from ttl_odm.forecasting.telling import heading, named, note, sentences, table
from ttl_odm.forecasting.typed import typed_policy

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
    "planned_policy",
    "sentences",
    "table",
    "typed_policy",
]

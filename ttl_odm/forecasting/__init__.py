"""What expires when, by the policy as it is and by another that is only planned.

The command lines (`ttl-odm plan`, ``flask ttl plan``) show it; this package must not know them.
`sql` and `mongodb` count, and need their extras; the rest is pure.
"""

from ttl_odm.forecasting.forecast import AGES, AHEAD, Estimate, Forecast, Measured
from ttl_odm.forecasting.planning import bounds_for, forecast_of, planned_policy
from ttl_odm.forecasting.telling import note, sentences, table

__all__ = [
    "AGES",
    "AHEAD",
    "Estimate",
    "Forecast",
    "Measured",
    "bounds_for",
    "forecast_of",
    "note",
    "planned_policy",
    "sentences",
    "table",
]

"""What expires when, by the policy as it is and by another that is only planned.

- `parse`: what is planned, as somebody has typed it;
- `sample`: the questions, and which rows are counted;
- `sql`, `mongodb`, `django`: the counting; they need their extras, all else is pure;
- `estimates`: numbers of rows with their error;
- `change`, `change_mongodb`, `django_change`: what applications call of `ttl_odm.stored.previews`;
- `trial`: what a proposal of `ttl-odm inspect` is worth by the same counting;
- `text`: what a forecast says to people and machines.

The command lines (`ttl-odm plan`, ``flask ttl plan``, ``manage.py ttl_plan``) show it; this package
must not know them.
"""

from ttl_odm.forecast.estimates import Drawn, Estimate, Measured
from ttl_odm.forecast.parse import parse_policy, planned_policy
from ttl_odm.forecast.text import Forecast

__all__ = [
    "Drawn",
    "Estimate",
    "Forecast",
    "Measured",
    "parse_policy",
    "planned_policy",
]

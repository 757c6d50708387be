"""What expires when, by the current policy and by a planned one.

- `parser`: a planned policy, as the user typed it;
- `sample`: the questions, and which rows are counted;
- `sql`, `mongodb`, `django`: the counting; they need their extras, the other modules are pure;
- `estimates`: numbers of rows with their error;
- `text`: a forecast in words and in JSON, and the numbers for a proposal of `ttl-odm inspect`;
- `change`, `change_mongodb`, `django_change`: the names under which applications import the
  previews of `ttl_odm.stored`.

The command lines (`ttl-odm plan`, ``flask ttl plan``, ``manage.py ttl_plan``) print forecasts. This
package must not know them.
"""

from ttl_odm.forecast.estimates import Drawn, Estimate, Measured
from ttl_odm.forecast.parser import parse_policy, planned_policy
from ttl_odm.forecast.text import Forecast

__all__ = [
    "Drawn",
    "Estimate",
    "Forecast",
    "Measured",
    "parse_policy",
    "planned_policy",
]

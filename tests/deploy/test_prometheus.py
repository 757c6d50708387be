"""deploy/prometheus-alerts.yml and deploy/grafana-dashboard.json: what Prometheus makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ttl_odm.events.metrics.numbers import DELIVERIES, FAILURES, OUTBOX_NUMBERS, SWEPT
from ttl_odm.metrics.numbers import NUMBERS
from ttl_odm.partitions import facts
from ttl_odm.stored import scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
DEPLOY = HERE.parents[1] / "deploy"
ALERTS = DEPLOY / "prometheus-alerts.yml"
BOARD: Any = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
RULES: list[Any] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]

# Both with all that refers to the labels of the result: legends, summaries.
OF_PANELS = [
    (target["expr"], target["legendFormat"])
    for panel in BOARD["panels"]
    for target in panel["targets"]
]
OF_ALERTS = [(each["expr"], " ".join(each["annotations"].values())) for each in RULES]


def series() -> dict[str, set[str]]:
    """The labels of every series that the collectors can have, by its name."""
    found = {}
    of_events = (DELIVERIES, FAILURES, SWEPT, *OUTBOX_NUMBERS)
    for each in (*NUMBERS, *facts.NUMBERS.values(), *scopes.NUMBERS, *of_events):
        labels = {*each.labels, "backend"}
        suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_sum", "_count")}
        found |= {f"ttl_odm_{each.name}{suffix}": labels for suffix in suffixes[each.kind]}
        if each.kind == "histogram":
            found[f"ttl_odm_{each.name}_bucket"] = {*labels, "le"}
    return found


def labels_in(expression: str, text: str) -> Iterator[str]:
    """Every label that an expression, and what is said of its result, goes by."""
    for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        yield from names.split(", ")
    for matchers in re.findall(r"\{([^}]*)\}", expression):
        yield from re.findall(r"(\w+)\s*[=!]", matchers)
    yield from re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text)


@pytest.mark.slow
def test_the_alert_rules_are_rules(checked: Callable[..., str]) -> None:
    assert f"{len(RULES)} rules found" in checked("check", "rules", str(ALERTS))


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_not_before(checked: Callable[..., str]) -> None:
    assert "SUCCESS" in checked("test", "rules", str(HERE / "alerts.yml"))
    tried = {
        each["alertname"]
        for test in yaml.safe_load((HERE / "alerts.yml").read_text())["tests"]
        for each in test["alert_rule_test"]
        if each["exp_alerts"]
    }
    assert tried == {each["alert"] for each in RULES}


def test_every_expression_of_the_dashboard_is_one(
    checked: Callable[..., str], tmp_path: Path
) -> None:
    rules = [{"record": f"a:{n}", "expr": expr} for n, (expr, _) in enumerate(OF_PANELS)]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked("check", "rules", str(file))


@pytest.mark.parametrize(("expression", "text"), [*OF_PANELS, *OF_ALERTS])
def test_every_series_that_is_named_exists_with_its_labels(expression: str, text: str) -> None:
    known = series()
    named = re.findall(r"\bttl_odm_\w+", expression)
    assert named
    for name in named:
        assert name in known
    for label in labels_in(expression, text.replace("$value", "")):
        assert any(label in known[name] for name in named), label


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    assert BOARD["title"]
    assert BOARD["uid"]
    (variable,) = BOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    panels = BOARD["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in {"timeseries", "stat"}
        assert panel["title"]
        assert panel["datasource"]["uid"] == f"${{{variable['name']}}}"
        references = [each["refId"] for each in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
    cells = [
        (x, y)
        for place in (each["gridPos"] for each in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)  # none lies over another
    assert max(x for x, _ in cells) < 24

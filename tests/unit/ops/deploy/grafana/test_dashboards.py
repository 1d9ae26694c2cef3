"""The dashboards' files are current; their expressions are PromQL over metrics that exist.

That Prometheus has an answer to each is in tests/integration/test_metrics.py.
"""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from ops.deploy.grafana.__main__ import FILES, FOLDER, main
from ops.deploy.grafana.dashboards import DASHBOARDS, Dashboard
from tests.unit.ops.deploy.test_prometheus import NAME, exposed_names, rules

# Grafana's own words, which Prometheus does not know.
WIDTH = "$__rate_interval"
COLUMNS = 24


def parsed(expression: str) -> promql_parser.Expr:
    """Parse an expression; raise ValueError if it is none."""
    return promql_parser.parse(expression.replace(WIDTH, "1m"))


def test_the_files_are_current() -> None:
    """Each is what `make dashboards` would write now."""
    assert main(["--check"]) == 0


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_expressions_are_promql_over_what_is_exposed(dashboard: Dashboard) -> None:
    """They parse, are narrowed to the chosen jobs, and no metric in them is made up."""
    for panel, query in dashboard.queries():
        parsed(query.expr)
        selectors = NAME.findall(query.expr) + re.findall(r"process_\w+{", query.expr)
        assert query.expr.count('job=~"$job"') == len(selectors), panel.title
        assert set(NAME.findall(query.expr)) <= exposed_names(), panel.title


def test_a_bad_expression_is_rejected() -> None:
    """The parser is one that refuses; the alerts' expressions pass it, too."""
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        parsed("sum by (rate(skeletonhunter_probes_total[1m])")
    for rule in rules():
        parsed(rule["expr"])


@pytest.mark.parametrize("name", FILES)
def test_grafana_gets_what_it_needs(name: str) -> None:
    """Ids that are unique, panels that do not cover each other, a source and a doc for each."""
    written: dict[str, Any] = json.loads(Path(FOLDER, name).read_text(encoding="utf-8"))
    panels = written["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < COLUMNS
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "$source"}
            assert panel["description"]
            assert panel["targets"]
            assert panel["options"]
    assert [one["name"] for one in written["templating"]["list"]] == ["source", "job"]

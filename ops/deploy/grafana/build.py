"""Dashboards as the JSON that Grafana imports, by Grafana's own builders.

The only module that knows `grafana-foundation-sdk` (Apache-2.0, of the extra `dev`): who installs
dashboards needs the JSON alone.
"""

import json
from collections.abc import Iterator
from itertools import count
from string import ascii_uppercase
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

from ops.deploy.grafana.dashboards import Dashboard, Limit, Panel, Query

# Grafana's grid has 24 columns.
COLUMNS: Final = 24
NUMBER_WIDTH: Final = 4
NUMBER_HEIGHT: Final = 4
GRAPH_WIDTH: Final = 12
GRAPH_HEIGHT: Final = 8
TAG: Final = "skeletonhunter"
GOOD: Final = "green"
BAD: Final = "red"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="$source")


def text_of(shown: Dashboard) -> str:
    """Return the JSON of a dashboard."""
    built = (
        dashboard.Dashboard(shown.title)
        .uid(f"skeletonhunter-{shown.name}")
        .description(shown.doc)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus")
        )
        .with_variable(
            dashboard.QueryVariable("job")
            .label("Cluster (job of Prometheus)")
            .datasource(SOURCE)
            .query("label_values(skeletonhunter_build_info, job)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
        )
        .link(
            dashboard.DashboardLink("SkeletonHunter")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )
    top, ids = 0, count(1)
    for row in shown.rows:
        place = GridPos(h=1, w=COLUMNS, x=0, y=top)
        built.with_row(dashboard.Row(row.title).id(next(ids)).grid_pos(place))
        top += 1
        for panel, place in _placed(row.panels, top):
            made = _number(panel) if panel.number else _graph(panel)
            made.id(next(ids)).title(panel.title).description(panel.doc).unit(panel.unit)
            made.datasource(SOURCE).no_value(panel.absent).grid_pos(place)
            made.thresholds(_thresholds(panel.limit))
            for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
                made.with_target(_target(letter, query))
            built.with_panel(made)
            top = max(top, place.y + place.h)
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _placed(panels: tuple[Panel, ...], top: int) -> Iterator[tuple[Panel, GridPos]]:
    """Yield panels from left to right, in lines."""
    left, line = 0, 0
    for panel in panels:
        width, height = (
            (NUMBER_WIDTH, NUMBER_HEIGHT) if panel.number else (GRAPH_WIDTH, GRAPH_HEIGHT)
        )
        if left + width > COLUMNS:
            left, top = 0, top + line
        line = height
        yield panel, GridPos(h=height, w=width, x=left, y=top)
        left += width


def _number(panel: Panel) -> stat.Panel:
    coloured = BigValueColorMode.VALUE if panel.limit is None else BigValueColorMode.BACKGROUND
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().color_mode(coloured).reduce_options(last)


def _graph(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True)
    legend.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    made = timeseries.Panel().min(0).legend(legend)
    if panel.limit is not None:
        line = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE)
        made.thresholds_style(line)
    return made


def _target(letter: str, query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(letter).expr(query.expr).legend_format(query.legend)


def _thresholds(limit: Limit | None) -> dashboard.ThresholdsConfig:
    if limit is None:
        steps = [Threshold(color=GOOD)]
    else:
        first, then = (BAD, GOOD) if limit.below else (GOOD, BAD)
        steps = [Threshold(color=first), Threshold(value=limit.value, color=then)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)

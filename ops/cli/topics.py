"""`topics plan | apply | describe`: the cluster's topics against the contract's."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ops.cli import options
from ops.cli.errors import FOUND, USAGE, CliError
from schemas.kafka.connection import KafkaSettings, load_settings
from schemas.topics import BY_NAME, TOPICS, Topic

if TYPE_CHECKING:
    from ops.topics.plan import FoundTopic, Options, Plan

NS_PER_HOUR: Final = 3_600 * 10**9

ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        min=1,
        help="Copies of each new topic [default: 3, or as many as there are brokers]",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        help="Partitions of the topics whose load grows with the cluster [default: the contract's]",
    ),
]
Agents = Annotated[
    int | None,
    typer.Option(
        "--agents",
        min=1,
        help="Agents of the cluster, which sizes the topics that they read: a partition for 16 of "
        "them [default: 64]",
    ),
]
KeepAll = Annotated[
    bool,
    typer.Option(
        "--keep-all",
        help="Delete nothing by age, keep given timestamps: for topics that take a replay",
    ),
]


def plan(
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    replication_factor: ReplicationFactor = None,
    partitions: Partitions = None,
    agents: Agents = None,
    keep_all: KeepAll = False,
    as_json: options.Json = False,
) -> None:
    """Print what `topics apply` would change, and change nothing.

    Exit code 1 if it would have to shrink a topic, which is refused.

    Example: skeletonhunter topics plan --bootstrap kafka:9092 --partitions 12
    """
    settings = _settings(config, bootstrap, prefix)
    wanted = _options(replication_factor, partitions, agents, keep_all=keep_all)
    found = _plan(settings, wanted)
    if as_json:
        _show_json(found, applied=False)
    else:
        _show(found)
    if found.refusals:
        raise typer.Exit(FOUND)


def apply(
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    replication_factor: ReplicationFactor = None,
    partitions: Partitions = None,
    agents: Agents = None,
    keep_all: KeepAll = False,
    as_json: options.Json = False,
) -> None:
    """Make the contract's topics: create, add partitions, set settings; print the difference first.

    Doing it again changes nothing. Settings that the contract does not name are
    left alone. If a topic would have to shrink, nothing at all is changed, and
    the exit code is 1.

    Example: skeletonhunter topics apply --replication-factor 3
    """
    from ops.topics.admin import TopicAdmin

    settings = _settings(config, bootstrap, prefix)
    wanted = _options(replication_factor, partitions, agents, keep_all=keep_all)
    found = _plan(settings, wanted)
    if not as_json:
        _show(found)
    if not found.refusals:
        TopicAdmin(settings).apply(found.changes, wanted.replication_factor)
    if as_json:
        _show_json(found, applied=not found.refusals)
    elif found.refusals:
        typer.echo("nothing was changed")
    elif found.changes:
        typer.echo(f"{len(found.changes)} changes made on {settings.bootstrap}")
    if found.refusals:
        raise typer.Exit(FOUND)


def describe(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="One topic [default: all]")
    ] = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Print the contract's topics: what they hold, their keys, and how they are on the cluster.

    Example: skeletonhunter topics describe fault.event.v1
    """
    from ops.topics.admin import TopicAdmin

    if topic is not None and topic not in BY_NAME:
        raise CliError(f"no topic {topic!r} in the contract; there are {', '.join(BY_NAME)}", USAGE)
    settings = _settings(config, bootstrap, prefix)
    topics = TOPICS if topic is None else (BY_NAME[topic],)
    found = TopicAdmin(settings).found(settings.topic(t.name) for t in topics)
    rows = [_described(t, settings, found.get(settings.topic(t.name))) for t in topics]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(_as_text(row))


def _settings(config: Path | None, bootstrap: str | None, prefix: str | None) -> KafkaSettings:
    return replace(load_settings(config, bootstrap=bootstrap, prefix=prefix), role="operator")


def _options(
    replication_factor: int | None, partitions: int | None, agents: int | None, *, keep_all: bool
) -> "Options":
    from ops.topics.plan import Options

    return Options(
        replication_factor=replication_factor,
        partitions=partitions,
        agents=agents,
        keep_all=keep_all,
    )


def _plan(settings: KafkaSettings, wanted: "Options") -> "Plan":
    from ops.topics.admin import TopicAdmin
    from ops.topics.plan import plan as plan_topics
    from ops.topics.plan import wanted_topics

    topics = wanted_topics(settings.topic_prefix, wanted)
    return plan_topics(topics, TopicAdmin(settings).found(t.name for t in topics))


def _show(plan: "Plan") -> None:
    for difference in plan.differences:
        typer.echo(str(difference))
    if not plan.differences:
        typer.echo("all topics are as the contract wants them")


def _show_json(plan: "Plan", *, applied: bool) -> None:
    differences = [{"action": type(d).__name__.lower(), **asdict(d)} for d in plan.differences]
    typer.echo(json.dumps({"differences": differences, "applied": applied}, indent=2))


def _described(topic: Topic, settings: KafkaSettings, found: "FoundTopic | None") -> dict[str, Any]:
    hours = None if topic.retention_ns is None else topic.retention_ns // NS_PER_HOUR
    return {
        "topic": settings.topic(topic.name),
        "doc": topic.doc,
        "key": topic.key,
        "partitioned_by": topic.partitioned_by,
        "producers": list(topic.producers),
        "consumers": list(topic.consumers),
        "cleanup": topic.cleanup,
        "retention_hours": hours,
        "dead_letters": settings.topic(topic.dlq),
        "cluster": None
        if found is None
        else {
            "partitions": found.partitions,
            "replication_factor": found.replication_factor,
            "cleanup": found.config.get("cleanup.policy"),
            "retention_ms": found.config.get("retention.ms"),
        },
    }


def _as_text(row: dict[str, Any]) -> str:
    kept = "for ever" if row["retention_hours"] is None else f"{row['retention_hours']} h"
    there = row["cluster"]
    state = (
        "missing: run `skeletonhunter topics apply`"
        if there is None
        else f"{there['partitions']} partitions, {there['replication_factor']} copies"
    )
    return (
        f"{row['topic']}: {row['doc']}\n"
        f"  key {row['key']}, partition by {row['partitioned_by']}; {row['cleanup']}, kept {kept}\n"
        f"  {', '.join(row['producers'])} -> {', '.join(row['consumers'])}; on the cluster: {state}"
    )


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="The contract's topics on a cluster.", no_args_is_help=True)
    group.command()(plan)
    group.command()(apply)
    group.command()(describe)
    app.add_typer(group, name="topics")

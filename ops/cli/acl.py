"""`acl plan | apply`: what each principal may do on the cluster, and no more."""

import json
import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ops.cli import options
from ops.cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from pathlib import Path

    from ops.acl.plan import Grant
    from schemas.kafka.connection import KafkaSettings

# What Kubernetes takes as a label's value (RFC 1123, at most 63 characters), as Strimzi's
# `strimzi.io/cluster` is one.
KUBERNETES_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
AUTHENTICATIONS: Final = ("scram-sha-512", "tls")

For = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="ROLE[=PRINCIPAL]",
        help="A role and its principal, such as worker=User:alice; may be repeated "
        "[default: every role]",
    ),
]
Principal = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Principal of roles for which --for names none, such as User:CN=prod-1-ROLE,O=Example "
        "[default: User:skeletonhunter-ROLE]",
    ),
]


def plan(
    *,
    wanted: For = None,
    principal: Principal = None,
    strimzi: Annotated[
        str | None,
        typer.Option(metavar="KAFKA", help="Print Strimzi KafkaUsers for that Kafka resource"),
    ] = None,
    authentication: Annotated[
        str, typer.Option(metavar="TYPE", help="Of Strimzi's users: scram-sha-512 or tls")
    ] = "scram-sha-512",
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Print the least access that each role needs, as kafka-acls commands; asks no broker.

    Roles: agent, worker, skeleton, localizer; scheduler, inventory and states, who
    publish what the platform knows; web, bridge, reader; responder, who silences faults;
    operator, who makes topics.

    Example: skeletonhunter acl plan --for worker=User:alice --for localizer=User:bob
    """
    from ops.acl import render

    if authentication not in AUTHENTICATIONS:
        raise CliError(
            f"--authentication {authentication!r} must be {' or '.join(AUTHENTICATIONS)}", USAGE
        )
    if strimzi is not None and not KUBERNETES_NAME.fullmatch(strimzi):
        raise CliError(
            f"--strimzi {strimzi!r} is no name of a Kafka resource: small letters, digits, "
            "- and ., at most 63",
            USAGE,
        )
    settings = _settings(config, bootstrap, prefix)
    grants = _grants(wanted, principal, settings, config)
    if strimzi is not None:
        _check_strimzi_names(grants, authentication)
    if as_json:
        typer.echo(json.dumps(render.as_data(grants), indent=2))
        return
    lines = (
        render.commands(grants, settings.bootstrap)
        if strimzi is None
        else render.strimzi(grants, strimzi, authentication)
    )
    for line in lines:
        typer.echo(line)


def apply(
    *,
    wanted: For = None,
    principal: Principal = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Add the ACLs of the plan that the cluster lacks, and say which; by the login of a super user.

    Doing it again changes nothing. Nothing is taken away: what a principal holds beyond
    the plan is named.

    Example: skeletonhunter acl apply --for worker=User:alice --config admin.toml
    """
    from dataclasses import asdict

    from ops.acl.admin import AclAdmin
    from ops.acl.render import by_operations
    from schemas.kafka.connection import load_settings

    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    admin = AclAdmin(settings)
    differences = admin.differences(_grants(wanted, principal, settings, config))
    added = admin.add(differences)
    if as_json:
        shown = [asdict(difference) for difference in differences]
        typer.echo(json.dumps({"differences": shown, "added": added}, indent=2))
        return
    for one in differences:
        for together in by_operations(one.missing):
            typer.echo(f"+ {one.principal}: {together}")
        for extra in one.beyond:
            typer.echo(f"! {one.principal} has more than the plan: {extra}")
    typer.echo(
        f"{added} ACLs added on {settings.bootstrap}"
        if added
        else f"all principals of the plan have their ACLs on {settings.bootstrap}"
    )


def _settings(config: "Path | None", bootstrap: str | None, prefix: str | None) -> "KafkaSettings":
    """Return the settings; a plan needs no broker, so its address may be unknown."""
    from schemas.kafka.connection import NoBrokerError, load_settings

    try:
        return load_settings(config, bootstrap=bootstrap, prefix=prefix)
    except NoBrokerError:
        return load_settings(config, bootstrap="BOOTSTRAP:9092", prefix=prefix)


def _grants(
    wanted: list[str] | None,
    pattern: str | None,
    settings: "KafkaSettings",
    config: "Path | None",
) -> "tuple[Grant, ...]":
    from ops.acl.plan import DEFAULT_PRINCIPAL, Names, grants, principal_of, principals_of_roles
    from schemas.process.settings import read_table
    from streams.config import WorkerConfig

    pattern = DEFAULT_PRINCIPAL if pattern is None else pattern
    principals = list(principals_of_roles(pattern).items())
    if wanted:
        principals = []
        for pair in wanted:
            role, equals, who = pair.partition("=")
            if equals and not who:
                raise CliError(f"--for {pair}: name a principal, such as {pair}User:alice", USAGE)
            principals.append((role, who or principal_of(role, pattern)))
    names = Names(
        prefix=settings.topic_prefix,
        cluster=settings.cluster,
        worker_group=str(read_table(config, "worker").get("group", WorkerConfig().group)),
    )
    for _, who in principals:
        kind, colon, name = who.partition(":")
        if not (kind and colon and name):
            raise CliError(f"--for: {who!r} is no principal; write User:{name or who}", USAGE)
        if name == "*":
            # Kafka's wildcard: also who has no login, and whoever comes later.
            raise CliError(f"--for: {who} is everybody; name a principal for each role", USAGE)
    try:
        return tuple(one for role, who in principals for one in grants({role: who}, names))
    except KeyError as error:
        raise CliError(f"--for: {error.args[0]}", USAGE) from None


def _check_strimzi_names(grants: "tuple[Grant, ...]", authentication: str) -> None:
    """Refuse a principal that Strimzi does not make: of a user's name, with certificates CN=NAME.

    Raises
    ------
    CliError
        If there is one.
    """
    for grant in grants:
        name = grant.principal.removeprefix("User:")
        if authentication == "tls":
            name = name.removeprefix("CN=")
        if not KUBERNETES_NAME.fullmatch(name):
            raise CliError(
                f"{grant.principal} cannot be a KafkaUser: with --authentication {authentication} "
                f"its principal is User:{'CN=' if authentication == 'tls' else ''}NAME, where NAME "
                "has small letters, digits, - and .",
                USAGE,
            )


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Least privilege: what each principal may do on the cluster.", no_args_is_help=True
    )
    group.command()(plan)
    group.command()(apply)
    app.add_typer(group, name="acl")

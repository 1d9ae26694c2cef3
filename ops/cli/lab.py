"""`lab up | fault | heal | status | down | kinds`: a network to break on this machine."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ops.cli import options
from ops.cli.errors import USAGE, CliError
from ops.cli.lab_errors import Name, plain_errors
from ops.cli.lab_kinds import kinds
from ops.cli.lab_recorded import record_suite, score
from ops.cli.lab_suite import suite
from schemas.kafka.connection import KafkaSettings, load_settings
from schemas.units import MS_NS, SECOND_NS

if TYPE_CHECKING:
    from ops.lab.lab import Lab
    from ops.lab.ranks import JobConfig

DOWN_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.1


def up(
    *,
    kind: Annotated[
        str,
        typer.Option(help="loopback (UDP relays), netns (kernel, root) or rxe (verbs in QEMU)"),
    ] = "loopback",
    hosts: Annotated[
        int | None, typer.Option(help="Hosts, each with one container [default: 4; rxe: 6]")
    ] = None,
    rails: Annotated[int | None, typer.Option(help="RNICs per host [default: 4; rxe: 1]")] = None,
    pods: Annotated[
        int | None,
        typer.Option(help="Pods, over which the hosts are split [default: 2; rxe: 3]"),
    ] = None,
    leaves: Annotated[
        int | None, typer.Option(help="Leaf switches per pod [default: 2; rxe: 1]")
    ] = None,
    spines: Annotated[int | None, typer.Option(help="Spine switches [default: 2; rxe: 1]")] = None,
    stages: Annotated[
        int | None, typer.Option(help="Pipeline stages of the training job [default: 2]")
    ] = None,
    period: Annotated[float, typer.Option(help="Seconds of one training iteration")] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the draws on loss, jitter, corruption")] = 1,
    name: Name = "default",
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when the lab is up; it goes on by itself")
    ] = False,
    job: Annotated[
        str | None,
        typer.Option(help="Train really instead of simulating it: torch or jax (netns only)"),
    ] = None,
    job_python: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            help="Python that has PyTorch, or JAX [default: what `make training`, `make "
            "training-jax` made]",
        ),
    ] = None,
    no_agents: Annotated[
        bool, typer.Option("--no-agents", help="Only fabric, topology and training job")
    ] = False,
    apply_topics: Annotated[
        bool, typer.Option("--apply-topics", help="Make missing topics first")
    ] = False,
    logs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep logs and the truth here [default: nothing stays]"),
    ] = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
) -> None:
    """Bring up a leaf-spine fabric with real agents and a training job on this machine.

    Needs a Kafka, but no root: hosts, RNICs and switches are UDP sockets on
    127.0.0.1, and every packet travels from socket to socket. With `--kind netns`,
    which needs root, they are network namespaces of the kernel; with `--kind rxe`
    Soft-RoCE RNICs and routers of a throw-away virtual machine. Stays in the
    foreground until Ctrl-C or `lab down`, and leaves nothing behind.

    Example: skeletonhunter lab up --hosts 6 --pods 3 --apply-topics
    """
    settings = replace(load_settings(config, bootstrap=bootstrap, prefix=prefix), role="")
    with plain_errors():
        from ops.lab.kind import lab_kind
        from ops.lab.lab import Lab, LabConfig
        from ops.lab.shape import LabShape
        from ops.lab.workload import Workload

        usual = lab_kind(kind).shape
        shape = LabShape(
            hosts=usual.hosts if hosts is None else hosts,
            rails=usual.rails if rails is None else rails,
            pods=usual.pods if pods is None else pods,
            leaves=usual.leaves if leaves is None else leaves,
            spines=usual.spines if spines is None else spines,
        )
        workload = Workload(shape=shape, stages=stages, period_ns=round(period * SECOND_NS))
        ranks = _job(job, job_python, workload.period_ns, stages, kind)
        _topics(settings, apply=apply_topics)
        if detach:
            _up_detached(
                name,
                {
                    **{f"--{k}": v for k, v in shape.as_dict().items() if k != "task_id"},
                    "--kind": kind,
                    "--stages": stages,
                    "--period": period,
                    "--seed": seed,
                    "--job": job,
                    "--job-python": ranks and ranks.python,
                    "--no-agents": no_agents,
                    "--logs": logs and logs.absolute(),
                    "--bootstrap": bootstrap,
                    "--config": config,
                    "--prefix": prefix,
                },
            )
            return
        lab_config = LabConfig(
            settings=settings,
            kind=kind,
            shape=shape,
            name=name,
            agents=not no_agents,
            seed=seed,
            stages=stages,
            period_ns=workload.period_ns,
            job=ranks,
            keep=logs,
        )
        _up_here(Lab(lab_config, say=_say), name)


def _job(
    job: str | None, python: Path | None, period_ns: int, stages: int | None, kind: str
) -> "JobConfig | None":
    from ops.lab.errors import LabError, LabUsageError
    from ops.lab.fault_kinds import NETNS_LAB
    from ops.lab.frameworks import framework_of, job_python
    from ops.lab.kind import lab_kind
    from ops.lab.ranks import JobConfig

    if job is None:
        if python is not None:
            raise LabUsageError("--job-python is of --job torch and --job jax")
        return None
    framework = framework_of(job)
    if stages is not None:
        raise LabUsageError("--stages is of the simulated job: a real one has no pipeline")
    # Before its framework, which is large: it would be installed in vain.
    if kind != NETNS_LAB:
        raise LabUsageError(f"a real job trains in a {NETNS_LAB} lab only: add --kind {NETNS_LAB}")
    if (lacking := lab_kind(kind).missing()) is not None:
        raise LabError(f"no {kind} lab here: {lacking}")
    return JobConfig(
        python=job_python(python, framework).absolute(),
        framework=framework,
        period_ms=period_ns // MS_NS,
    )


def _topics(settings: KafkaSettings, *, apply: bool) -> None:
    from ops.lab.preflight import missing_topics

    missing = missing_topics(settings)
    if missing and not apply:
        raise CliError(
            f"{settings.bootstrap} lacks {len(missing)} topics ({missing[0]} …): "
            "run `skeletonhunter topics apply`, or add --apply-topics"
        )
    if missing:
        from ops.topics.admin import apply_topics

        apply_topics(settings)


def _say(text: str) -> None:
    from rich.console import Console

    Console(highlight=False).print(f"{time.strftime('%H:%M:%S')}  {text}", markup=False)


def _up_here(lab: "Lab", name: str) -> None:
    from ops.lab.serve import LabServer
    from schemas.process.signals import interruptible

    with interruptible(), lab:
        suffix = "" if name == "default" else f" --name {name}"
        link = lab.shape.links[-1].link_id
        _say(f"lab {name!r} is up. Ctrl-C ends it. In another terminal, for example:")
        _say(f"  skeletonhunter lab fault link-cut {link}{suffix}")
        _say(f"  skeletonhunter lab heal --all{suffix}")
        LabServer(lab, _say).run(lambda: False)


def _up_detached(name: str, flags: Mapping[str, Any]) -> None:
    from ops.lab.detach import up_detached
    from schemas.process.signals import interruptible

    with interruptible():
        pid = up_detached(name, flags)
    typer.echo(f"lab {name!r} is up (pid {pid}); end it with `skeletonhunter lab down`")


def fault(
    kind: Annotated[str, typer.Argument(help="Kind of fault; `lab kinds` lists them")],
    target: Annotated[str, typer.Argument(help="Component to hit")],
    *,
    percent: Annotated[float | None, typer.Option(help="Share of the packets")] = None,
    ms: Annotated[float | None, typer.Option(help="Delay, jitter, period or wait")] = None,
    mbit: Annotated[float | None, typer.Option(help="Rate of a port or of traffic, Mbit/s")] = None,
    cross: Annotated[
        float | None, typer.Option(help="Cross traffic, in per cent of the port's rate")
    ] = None,
    duty: Annotated[
        float | None, typer.Option(help="There for this share of each period only, in per cent")
    ] = None,
    period_s: Annotated[float | None, typer.Option(help="Seconds of such a period")] = None,
    count: Annotated[float | None, typer.Option(help="Busy processes")] = None,
    how: Annotated[
        str | None, typer.Option(help="What is different of a rank's gradients: size or order")
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option("--from", metavar="COMPONENT", help="Only what this end of the link sends"),
    ] = None,
    dst: Annotated[
        str | None, typer.Option(metavar="ENDPOINT", help="Only traffic to this endpoint")
    ] = None,
    name: Name = "default",
    as_json: options.Json = False,
) -> None:
    """Break something in a running lab.

    Example: skeletonhunter lab fault link-loss link:leaf:p0-0--spine:0 --percent 10
    """
    params = {
        "percent": percent,
        "ms": ms,
        "mbit": mbit,
        "cross": cross,
        "duty": duty,
        "period_s": period_s,
        "count": count,
        "how": how,
        "sender": sender,
        "dst": dst,
    }
    given = {key: value for key, value in params.items() if value is not None}
    truth = _ask(name, {"op": "fault", "kind": kind, "target": target, "params": given})
    if as_json:
        typer.echo(json.dumps(truth, indent=2))
    else:
        typer.echo(f"{truth['fault_id']}: {truth['kind']} on {truth['target']}{_params(truth)}")


def heal(
    target: Annotated[
        str | None, typer.Argument(help="Fault id, kind, or component; or give --all")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Heal all faults")] = False,
    name: Name = "default",
    as_json: options.Json = False,
) -> None:
    """Mend what was broken in a running lab.

    Example: skeletonhunter lab heal link:leaf:p0-0--spine:0
    """
    if (target is None) is not everything:
        raise CliError("say what to heal: a fault id, a kind, a component, or --all", USAGE)
    healed = _ask(name, {"op": "heal", "target": target})
    if as_json:
        typer.echo(json.dumps(healed, indent=2))
        return
    for truth in healed:
        typer.echo(f"{truth['fault_id']}: healed {truth['kind']} on {truth['target']}")
    if not healed:
        typer.echo("no fault was in force")


def restart(name: Name = "default") -> None:
    """End all ranks of a lab's real job, and begin anew from the last checkpoint.

    Example: skeletonhunter lab restart
    """
    _ask(name, {"op": "restart"})
    typer.echo("the training job begins anew")


def status(name: Name = "default", *, as_json: options.Json = False) -> None:
    """Print what runs in a lab, what is broken, and what the fabric has counted.

    Example: skeletonhunter lab status --json
    """
    found = _ask(name, {"op": "status"})
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    shape, fabric = found["shape"], found["fabric"]
    typer.echo(
        f"lab {found['name']!r} ({found['kind']}), pid {found['pid']}, on {found['bootstrap']}"
    )
    typer.echo("  " + ", ".join(f"{value} {key}" for key, value in shape.items() if key[0] != "t"))
    for agent_id, state in found["agents"].items():
        typer.echo(f"  {agent_id}: {state}")
    if found["job"] is not None:
        typer.echo(f"  ranks: iterations {found['job'].get('steps')}")
    if fabric["relayed"] is not None:
        counts = {"relayed": fabric["relayed"], **fabric["dropped"], **fabric["answered"]}
        typer.echo("  packets: " + ", ".join(f"{value} {key}" for key, value in counts.items()))
    for active in found["faults"]:
        typer.echo(
            f"  {active['fault_id']}: {active['kind']} on {active['target']}{_params(active)}"
        )
    if not found["faults"]:
        typer.echo("  no fault in force")


def down(name: Name = "default") -> None:
    """End a lab; clean up after one that crashed.

    Example: skeletonhunter lab down
    """
    from ops.lab.folder import LabFolder, is_up, lab_path

    with plain_errors():
        path = lab_path(name)
        if not is_up(path):
            if not path.exists():
                raise CliError(_not_up(name))
            LabFolder.acquire(name).release()
            typer.echo(f"lab {name!r} had crashed; what it left is gone")
            return
        _ask(name, {"op": "down"})
        deadline = time.monotonic() + DOWN_TIMEOUT_S
        while is_up(path):
            if time.monotonic() > deadline:
                raise CliError(f"lab {name!r} still runs after {DOWN_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        typer.echo(f"lab {name!r} is down")


def _params(truth: Mapping[str, Any]) -> str:
    return "".join(f", {key} {value}" for key, value in truth["params"].items())


def _not_up(name: str) -> str:
    return f"no lab {name!r} is up: start one with `skeletonhunter lab up`"


def _ask(name: str, command: Mapping[str, Any]) -> Any:
    with plain_errors():
        from ops.lab.control import ControlUnavailableError, request
        from ops.lab.folder import CONTROL_FILE, is_up, lab_path

        path = lab_path(name)
        if not is_up(path):
            raise CliError(_not_up(name))
        try:
            return request(path / CONTROL_FILE, command)
        except ControlUnavailableError as error:
            raise CliError(
                f"lab {name!r} takes no commands: it is coming up or going down, or belongs to "
                f"a demo or a benchmark ({error})"
            ) from error


COMMANDS: Final[tuple[Callable[..., None], ...]] = (
    up,
    fault,
    heal,
    restart,
    status,
    down,
    kinds,
    suite,
    record_suite,
    score,
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="A network on this machine, with real agents, to break.", no_args_is_help=True
    )
    for command in COMMANDS:
        group.command()(command)
    app.add_typer(group, name="lab")

"""`demo`: the whole pipeline and a lab on this machine, one link cut, one verdict."""

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ops.cli.errors import ENVIRONMENT, FOUND, CliError

LINK: Final = "link:leaf:p0-0--spine:0"
AUTO: Final = "auto"

NEXT: Final = """\
What you saw went through Kafka. To look at the topics yourself, run
  skeletonhunter broker run            and, in other terminals,
  skeletonhunter topics apply && skeletonhunter lab up
  skeletonhunter worker | skeletonhunter skeleton run | skeletonhunter localizer
  skeletonhunter lab fault link-cut {link}
  skeletonhunter tail fault.event.v1   verdicts: opened, updated, resolved
  skeletonhunter tail anomaly.v1       what the detectors saw
  skeletonhunter tail probe.window.v1  statistics per 5-tuple
  skeletonhunter tail skeleton.v1      what the job's traffic looks like
docs/reference/topics.md describes every topic and field."""


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("demo")
    def demo(
        bootstrap: Annotated[
            str | None,
            typer.Option(help="Use this Kafka (HOST:PORT); default: start Apache Kafka itself."),
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print the result as one JSON object.")
        ] = False,
        logs: Annotated[
            Path | None, typer.Option(help="Keep the processes' logs in this folder.")
        ] = None,
        kind: Annotated[
            str, typer.Option(help="Kind of lab: loopback, netns, or auto: netns where it may be.")
        ] = AUTO,
    ) -> None:
        """Show the whole pipeline: a lab, a cut link, the verdict, the resolve.

        Starts Apache Kafka, 4 hosts x 4 RNICs behind a leaf-spine fabric, the
        stream worker, the skeleton job and the localizer; cuts a link; exits 0
        only if the verdict named that link and the fault resolved. Needs no root,
        no Docker, no Java, and leaves nothing behind. Where it may (Linux, root), the
        fabric is made of network namespaces: the kernel routes, no program of ours.

        Example: skeletonhunter demo --logs /tmp/demo-logs
        """
        run(bootstrap=bootstrap, as_json=as_json, logs=logs, kind=kind)


def run(*, bootstrap: str | None, as_json: bool, logs: Path | None, kind: str) -> None:
    """Run the demonstration.

    Raises
    ------
    CliError
        With exit code 1 if the verdict was wrong or did not come, 3 if the
        pipeline did not come up.
    """
    # Here, not above: `--help` is quick.
    from rich.console import Console

    from ops.broker.errors import BrokerError
    from ops.demo.run import Demo, DemoFailedError
    from ops.demo.scoreboard import WATCHED
    from ops.demo.screen import RichScreen
    from ops.lab.lab import Lab, LabConfig, LabError
    from ops.log.watch import Watch
    from ops.running.pipeline import NotReadyError, Pipeline, PipelineConfig
    from ops.running.processes import ChildDiedError
    from schemas.process.signals import interruptible

    started = time.monotonic()
    console = Console(stderr=as_json)
    try:
        with interruptible(), ExitStack() as stack:
            folder = logs or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="skeletonhunter-demo-"))
            )
            screen = stack.enter_context(RichScreen(console))
            screen.step("starting " + (f"with {bootstrap}" if bootstrap else "Apache Kafka"))
            config = PipelineConfig(
                # A given broker may hold live topics: the demo keeps to its own.
                folder=folder, bootstrap=bootstrap, prefix="demo." if bootstrap else "",
            )  # fmt: skip
            pipeline = stack.enter_context(Pipeline(config))
            chosen = _chosen_kind() if kind == AUTO else kind
            screen.step(
                f"broker {pipeline.settings.bootstrap}; workers and a {chosen} lab are starting"
            )
            lab = stack.enter_context(
                Lab(
                    LabConfig(settings=pipeline.settings, name="demo", kind=chosen),
                    say=screen.step,
                )
            )
            pipeline.wait_ready()
            screen.step("worker, skeleton job and localizer are ready")
            watch = stack.enter_context(Watch(pipeline.settings, WATCHED, from_start=True))
            stage = _LabStage(lab, pipeline)
            result = Demo(watch, stage, screen, agents=lab.shape.hosts).run()
            screen.step("done; stopping everything")
    except DemoFailedError as error:
        raise CliError(f"the demonstration failed: {error}", FOUND) from error
    except (BrokerError, LabError, NotReadyError, ChildDiedError) as error:
        raise CliError(str(error), ENVIRONMENT) from error
    if as_json:
        outcome = {**asdict(result), "seconds": time.monotonic() - started}
        json.dump({**outcome, "right": result.named_the_link}, sys.stdout)
        print()
    else:
        _conclude(console, result, time.monotonic() - started)
    if not result.named_the_link:
        raise CliError(
            f"the verdict named {result.resolved.component_id}, the link cut was {result.link}",
            FOUND,
        )


def _chosen_kind() -> str:
    from ops.lab.fault_kinds import LOOPBACK_LAB, NETNS_LAB
    from ops.lab.kind import LAB_KINDS

    return LOOPBACK_LAB if LAB_KINDS[NETNS_LAB].missing() else NETNS_LAB


class _LabStage:
    """What the demonstration does to the lab."""

    def __init__(self, lab: Any, pipeline: Any) -> None:
        self._lab = lab
        self._pipeline = pipeline

    def break_link(self) -> str:
        """Cut the link between a leaf and a spine."""
        self._lab.fault("link-cut", LINK)
        return LINK

    def heal(self) -> None:
        """Join it again."""
        self._lab.heal()

    def check(self) -> None:
        """Raise if a process of lab or pipeline has ended."""
        self._lab.check()
        self._pipeline.group.check()


def _conclude(console: Any, result: Any, seconds: float) -> None:
    console.print(
        f"\nThe verdict named {result.resolved.component_id} {result.open_delay_s:.1f} s after "
        f"the cut and resolved {result.resolve_delay_s:.1f} s after the heal; {seconds:.0f} s in "
        f"all.\n\n{NEXT.format(link=result.link)}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )

"""`agent`, `worker`, `localizer`, `hangs`, `collect`, `bridge`: become that process."""

import os
import sys
from typing import Final

import typer

PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def run_room(module: str, arguments: list[str]) -> None:
    """Replace this process by `python -m <module>`: its memory and its signals are its own."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @app.command("agent", context_settings=PASS_ON)
    def agent(context: typer.Context) -> None:
        """Run the agent of a container or host: `skeletonhunter agent --help` teaches.

        Example: skeletonhunter agent --config /etc/skeletonhunter/agent.toml
        """
        run_room("probers", context.args)

    @app.command("worker", context_settings=PASS_ON)
    def worker(context: typer.Context) -> None:
        """Run a stream worker: windows, detectors, anomalies.

        Example: skeletonhunter worker --bootstrap 127.0.0.1:9092
        """
        run_room("streams", context.args)

    @app.command("localizer", context_settings=PASS_ON)
    def localizer(context: typer.Context) -> None:
        """Run the localizer: anomalies to fault verdicts.

        Example: skeletonhunter localizer --bootstrap 127.0.0.1:9092
        """
        run_room("localizer", context.args)

    @app.command("collect", context_settings=PASS_ON)
    def collect(context: typer.Context) -> None:
        """Collect what the ranks of training jobs on this host do.

        Example: skeletonhunter collect --once
        """
        run_room("probers.collector", context.args)

    @app.command("hangs", context_settings=PASS_ON)
    def hangs(context: typer.Context) -> None:
        """Run the hang watcher: which training jobs hang, since when, and why.

        Example: skeletonhunter hangs --bootstrap 127.0.0.1:9092
        """
        run_room("localizer.hangs", context.args)

    @app.command("bridge", context_settings=PASS_ON)
    def bridge(context: typer.Context) -> None:
        """Run the bridge: faults to Alertmanager, PagerDuty and webhooks.

        Example: skeletonhunter bridge --config skeletonhunter.toml --dry-run
        """
        run_room("ops.bridge", context.args)

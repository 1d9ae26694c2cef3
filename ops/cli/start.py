"""The entry of the `skeletonhunter` command: an interrupt while it still loads is quiet, too."""

from schemas.process.ending import end_with


def main() -> None:
    """Run the command, and end the process; exit code 130 after Ctrl-C."""
    end_with(_run)


def _run() -> None:
    from ops.cli.app import main as run

    run()


if __name__ == "__main__":
    main()

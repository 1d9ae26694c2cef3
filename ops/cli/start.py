"""The entry of the `skeletonhunter` command: an interrupt while it still loads is quiet, too."""

from ops.cli.errors import STOPPED
from schemas.process.ending import end_with


def main() -> None:
    """Run the command, and end the process; exit code 130 after Ctrl-C."""
    end_with(_run)


def _run() -> int:
    try:
        from ops.cli.app import main as run

        run()
    except KeyboardInterrupt:
        return STOPPED
    return 0


if __name__ == "__main__":
    main()

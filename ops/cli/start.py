"""The entry of the `skeletonhunter` command: an interrupt while it still loads is quiet, too."""

import sys

from ops.cli.errors import STOPPED


def main() -> None:
    """Run the command; exit code 130 after Ctrl-C."""
    try:
        from ops.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()

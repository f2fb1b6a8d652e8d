"""Entry point of the ``isice`` command and of ``python -m isice``."""

import sys

from ._extras import missing_package


def main() -> None:
    """Run the command line; if a package is missing, print the extra to install."""
    try:
        from .cli import main as run
    except ModuleNotFoundError as error:
        if (line := missing_package(error)) is None:
            raise
        print(line, file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()

"""``python -m isice``, where the command is not installed."""

from .cli import main

if __name__ == "__main__":
    main()

"""`python -m finitewidth` and the command `finitewidth` are the command line."""

from typing import NoReturn

from finitewidth.interface.cli import interrupts


def main() -> NoReturn:
    """Run the command line in a process that an interrupt ends at once."""
    interrupts.watch()
    try:
        from finitewidth.interface.cli.main import main as run  # takes a moment, and may be interrupted

        run()
    finally:
        interrupts.unwatch()


if __name__ == "__main__":
    main()

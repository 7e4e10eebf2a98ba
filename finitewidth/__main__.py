"""`python -m finitewidth` is the command line."""

from finitewidth.interface.cli import main

main()

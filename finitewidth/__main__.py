"""`python -m finitewidth` is the command line."""

from finitewidth.interface.cli.main import main

main()

"""`python -m batonbus` is the command line."""

from batonbus.cli import main

main()

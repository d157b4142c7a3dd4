"""`python -m nmt_cli` is the same as the command `nmt`."""

from nmt_cli.cli.app import main

main()

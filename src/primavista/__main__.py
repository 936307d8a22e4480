"""`python -m primavista`."""

from primavista.cli import main

main()

"""`python -m tailrace`: the same as the console script."""

from tailrace.cli import main

main()

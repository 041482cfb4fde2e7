"""The bench: Tailrace side by side with what a user would pick instead. `./tailrace bench --help`."""

"""Entry point of `python -m weblake`: the command line."""

from weblake.cli import main

if __name__ == "__main__":
    main()

"""`python -m nightjar`: the command line."""

from nightjar.cli.app import main

if __name__ == "__main__":
    main()

"""`python -m ragen_diag`: the command line."""

from ragen_diag.cli import main

if __name__ == "__main__":
    main()

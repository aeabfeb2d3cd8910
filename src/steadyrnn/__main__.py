"""``python -m steadyrnn``: the program."""

import sys

from steadyrnn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

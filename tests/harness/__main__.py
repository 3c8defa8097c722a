"""`python -m tests.harness`: see the runner."""

import sys

from tests.harness.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

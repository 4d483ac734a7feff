"""`python -m workbench`: the same as the command `workbench`."""

import sys
from pathlib import Path

if Path(sys.path[0]).resolve() == Path.cwd() != Path(__file__).resolve().parents[1]:
    del sys.path[0]  # `-m` puts the current folder before all that is installed; the command `workbench` does not

from workbench.cli import main

if __name__ == "__main__":
    main()

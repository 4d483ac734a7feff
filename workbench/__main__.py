"""The command `workbench`, which is also `python -m workbench`.

Nothing is imported before Ctrl-C is caught: what the command line needs takes half a second.
"""

import sys


def main() -> None:
    """As `workbench.cli.app.main`, also when it is interrupted before it begins."""
    try:
        if __name__ == "__main__":
            _leave_current_folder()
        from workbench.cli import app

        app.main()
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped\n")
        sys.exit(130)


def _leave_current_folder() -> None:
    """`-m` puts the current folder before all that is installed; the command `workbench` does not."""
    from pathlib import Path

    if Path(sys.path[0]).resolve() == Path.cwd() != Path(__file__).resolve().parents[1]:
        del sys.path[0]


if __name__ == "__main__":
    main()

"""The command line: see the package."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from pathlib import Path

from tests.robustness.soak.areas import AREAS
from tests.robustness.soak.engine import Soak
from tests.robustness.soak.processes import end_all, warm_up
from tests.robustness.soak.world import World


def main() -> int:
    """Returns 1 where there is a finding."""
    arguments = _parser().parse_args()
    logging.basicConfig(format="%(message)s", level="INFO", stream=sys.stdout)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    names = arguments.areas.split(",")
    unknown = sorted(set(names) - AREAS.keys())
    if unknown:
        sys.exit(f"no area {', '.join(unknown)}; there are: {', '.join(AREAS)}")
    output = arguments.output or Path(tempfile.mkdtemp(prefix="soak-"))
    output = output.absolute()
    warm_up()
    soak = Soak({name: AREAS[name] for name in names}, World(output / "world"), output, arguments.seed)
    logging.info("seed %d; counts and what is found go to %s", arguments.seed, output)
    try:
        if arguments.trial is None:
            soak.run(arguments.seconds + 3600 * arguments.hours)
        else:
            for name in names:
                soak.trial(name, arguments.trial)
    except KeyboardInterrupt:
        logging.info("stopped")
    finally:
        end_all()
    return report(soak)


def report(soak: Soak) -> int:
    """Print what was tried and found; returns the exit code."""
    for name, tally in soak.tallies.items():
        logging.info("%s: %d trials in %.0f s, %d findings", name, tally.trials, tally.seconds, len(tally.findings))
        for what, count in [*sorted(tally.counts.items()), *((f"SKIPPED: {k}", n) for k, n in tally.skipped.items())]:
            logging.info("  %6d  %s", count, what)
    for finding in soak.findings:
        logging.info("%s\n    %s", finding["command"], finding["found"].splitlines()[0])
    return 1 if soak.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.robustness.soak", description=sys.modules[__package__].__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--areas", default=",".join(AREAS), help="separated by commas; default: all")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", type=int, help="repeat this one")
    parser.add_argument("--output", type=Path, help="folder for the counts and for what is found; default: a new one")
    return parser


if __name__ == "__main__":
    sys.exit(main())

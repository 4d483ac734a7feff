"""The suite with the newest packages of the index, on each Python that is there: `make test-newest`.

Each Python gets an environment without constraints.txt. What is printed in the end is the table of docs/versions.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHOWN = ("torch", "torchvision", "numpy", "pandas", "av", "pyarrow", "tokenizers", "transformers", "pykeen", "spacy")


def main(arguments: Sequence[str]) -> int:
    """Install and run on every Python; 1 if a run failed or none of the Pythons is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the environments go")
    parser.add_argument("--pythons", nargs="+", required=True, help="such as 3.11 3.13, or paths")
    parser.add_argument("pytest", nargs="*", help="behind --: what pytest gets")
    options = parser.parse_args(arguments)
    rows, failed = [], False
    for version in options.pythons:
        python = shutil.which(version if "/" in version else f"python{version}")
        if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
            print(f"Python {version} is not here", flush=True)
            continue
        environment = installed(python, options.folder / version.strip("/").replace("/", "-"))
        done = subprocess.run(
            [environment, "-m", "pytest", "-p", "no:cacheprovider", *options.pytest],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(done.stdout, flush=True)
        failed |= done.returncode != 0
        rows.append([*versions(environment), summary(done.stdout)])
    print("\n".join(table(rows)))
    return int(failed or not rows)


def installed(python: str, folder: Path) -> str:
    """The Python of an environment in the folder with all that the tests need, as new as it comes."""
    own = folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [own, "-m", "pip", "install", "--quiet", "--upgrade"]
    subprocess.run([*pip, "pip"], check=True)
    subprocess.run([*pip, "--upgrade-strategy", "eager", "--editable", f"{ROOT}[dev,demo]"], check=True)
    return str(own)


def versions(python: str) -> list[str]:
    """That of an environment's Python, and of the packages shown."""
    code = (
        "import json, platform, sys; from importlib.metadata import version; "
        "print(json.dumps([platform.python_version(), *map(version, sys.argv[1:])]))"
    )
    done = subprocess.run([python, "-c", code, *SHOWN], check=True, stdout=subprocess.PIPE, text=True)
    found: list[str] = json.loads(done.stdout)
    return [version.partition("+")[0] for version in found]


def summary(output: str) -> str:
    """Of pytest's last line: how many passed and failed."""
    counts = re.findall(r"(\d+) (passed|failed|errors?)\b", output.rstrip().rpartition("\n")[2])
    return ", ".join(f"{int(number):,} {word}" for number, word in counts) or "did not run"


def table(rows: list[list[str]]) -> list[str]:
    """Markdown."""
    heads = ["Python", *SHOWN, "tests"]
    return [f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The page and the JSON of `workbench check`: what was run on which card, and what was found."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from pipelines.gpu.record import CheckRecord
from workbench.core.files.drafts import write_text
from workbench.runs.provenance import provenance

NAME = "gpu-check"
MORE_PACKAGES = ("triton", "transformers", "open_clip_torch")
MARKS = {True: "pass", False: "**FAIL**"}
VERDICTS: dict[bool | None, tuple[str, int]] = {True: ("passed", 0), False: ("FAILED", 1), None: ("incomplete", 3)}
"""The word of the title and the exit code, by `passed`."""
QUESTIONS = {
    "correct": ("kernels", "recipes", "resume"),
    "fast": ("speed", "waits", "idle", "compile"),
    "fed by the loader": ("loader",),
}
"""What the first sentence answers, each with the sections that all have to pass for it."""
ANSWERS = {True: "yes", False: "no", None: "not checked"}


def facts(device: torch.device) -> dict[str, Any]:
    """The card, its driver, the machine, the versions and the git revision."""
    found = torch.cuda.get_device_properties(device)
    versions = provenance()
    for package in MORE_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "card": found.name,
        "cards": torch.cuda.device_count(),
        "memory_gib": round(found.total_memory / 2**30, 1),
        "compute_capability": f"{found.major}.{found.minor}",
        "bfloat16": torch.cuda.is_bf16_supported(including_emulation=False),
        "driver": driver(),
        "cuda": torch.version.cuda,
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
    }


def driver() -> str:
    """The version of the card's driver, from `nvidia-smi`; "unknown" without that program."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else "unknown"


def write(
    folder: Path, title: str, about: dict[str, Any], records: Sequence[CheckRecord], name: str = NAME, command: str = ""
) -> Path:
    """Write the page and the JSON with the same numbers into a folder; returns the page's path.

    Args:
        command: of the check, which takes `--part`: the page says how to run those that are incomplete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"title": title, **about, "passed": passed(records), "parts": [record.as_dict() for record in records]}
    write_text(folder / f"{name}.json", json.dumps(whole, indent=1) + "\n")
    page = folder / f"{name}.md"
    write_text(page, markdown(title, about, records, command))
    return page


def passed(records: Sequence[CheckRecord]) -> bool | None:
    """Whether every section passed; None where none failed and one had too little time, or there is none."""
    found = {record.status for record in records}
    if "failed" in found:
        return False
    return True if found == {"passed"} else None


def verdict(records: Sequence[CheckRecord]) -> str:
    """The first sentence: is the card correct, fast and fed?"""
    by_name = {record.name: record for record in records}
    answers = []
    for question, parts in QUESTIONS.items():
        present = [by_name[part] for part in parts if part in by_name]
        found = passed(present)
        answer = ANSWERS[None if found and len(present) < len(parts) else found]
        ratios = [check.numbers["ratio"] for each in present for check in each.checks if "ratio" in check.numbers]
        if ratios:
            answer += f" ({min(ratios):.2f} to {max(ratios):.2f} of the peers' speed)"
        answers.append(f"{question}: {answer}")
    return "; ".join(answers) + "."


def markdown(title: str, about: dict[str, Any], records: Sequence[CheckRecord], command: str = "") -> str:
    """The page: the verdict, the machine, a line for each section, the failed checks, then all checks."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"# {title}: {VERDICTS[passed(records)][0]}", ""]
    if command:
        lines += [verdict(records), ""]
        left = [record.name for record in records if record.status == "incomplete"]
        lines += [f"Run the rest: `{' '.join([command, *(f'--part {name}' for name in left)])}`", ""] if left else []
    lines += [f"- {name.replace('_', ' ')}: {value}" for name, value in about.items() if name != "versions"]
    lines += [f"- versions: {versions}", "", "| part | | status | checks | seconds |", "|---|---|---|---|---|"]
    for record in records:
        right = sum(check.passed for check in record.checks)
        count = f"{right} of {len(record.checks)}"
        lines.append(f"| {record.name} | {record.title} | {record.status} | {count} | {record.seconds:.0f} |")
    failed = [(record, check) for record in records for check in record.checks if not check.passed]
    errors = [record for record in records if record.error is not None]
    if failed or errors:
        lines += ["", "## What failed", ""]
        lines += [f"- {record.name}: ended with {record.error}" for record in errors]
        lines += [f"- {r.name}, {c.name}: {c.found} (allowed: {c.allowed})" for r, c in failed]
    for record in records:
        lines += ["", f"## {record.name}: {record.title}", "", *_section(record)]
    return "\n".join(lines) + "\n"


def _section(record: CheckRecord) -> list[str]:
    lines = []
    if record.checks:
        lines += ["| check | | found | allowed |", "|---|---|---|---|"]
        rows = ((check.name, MARKS[check.passed], check.found, check.allowed) for check in record.checks)
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines.append("")
    lines += [f"- {note}" for note in record.notes]
    if record.skipped:
        lines.append(f"- not run, as the section's {record.budget:.0f} s were over: {', '.join(record.skipped)}")
    return lines

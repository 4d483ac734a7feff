"""The page and the JSON of `benchmarks.gpu_check`: what was run on which card, and what was found."""

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

from benchmarks.gpu.record import Record
from workbench.core.files.drafts import write_text
from workbench.runs.provenance import provenance

NAME = "gpu-check"
MORE_PACKAGES = ("triton", "transformers", "open_clip_torch")
MARKS = {True: "pass", False: "**FAIL**"}


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


def write(folder: Path, title: str, about: dict[str, Any], records: Sequence[Record], name: str = NAME) -> Path:
    """Write the page and the JSON with the same numbers into a folder; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"title": title, **about, "passed": passed(records), "parts": [record.as_dict() for record in records]}
    write_text(folder / f"{name}.json", json.dumps(whole, indent=1) + "\n")
    page = folder / f"{name}.md"
    write_text(page, markdown(title, about, records))
    return page


def passed(records: Sequence[Record]) -> bool:
    """Whether no section failed. One that had too little time has not failed, and the page lists it."""
    return all(record.status != "failed" for record in records)


def markdown(title: str, about: dict[str, Any], records: Sequence[Record]) -> str:
    """The page: the machine, a line for each section, the failed checks, then all checks."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"# {title}: {'passed' if passed(records) else 'FAILED'}", ""]
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


def _section(record: Record) -> list[str]:
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

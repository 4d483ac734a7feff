"""Builds the pretend device from its C sources, and says in which environment a process sees it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "device"
ROOT = Path(__file__).resolve().parents[2]
LIBRARY, DRIVER = "libpretend.so", "libcuda.so.1"


def unable() -> str | None:
    """Why this machine can't have the pretend device, or None."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"the pretend CUDA device needs Linux on x86-64, this is {platform.system()} on {platform.machine()}"
    missing = [program for program in ("gcc", "nm") if shutil.which(program) is None]
    if missing:
        return f"the pretend CUDA device is built by gcc and nm; {' and '.join(missing)} not found: install gcc"
    if torch.version.cuda is None:
        return f"the pretend CUDA device needs a CUDA build of torch, and {torch.__version__} is none"
    if _headers() is None:
        return "cuda_runtime_api.h lies in no wheel of nvidia next to torch: the pretend CUDA device can't be built"
    if torch.cuda.is_available():
        return "a real CUDA device is here, which the pretend one would hide: run workbench check"
    return None


def build(folder: Path) -> Path:
    """Compile both libraries into `folder`, which comes into being whole or not at all; returns it."""
    if folder.is_dir():
        return folder
    headers = _headers()
    assert headers is not None
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=folder.name))
    wanted = _open_symbols()
    _write_names(draft / "names.h", wanted, "cublas", SOURCES / "blas.c")
    _write_names(draft / "nccl_names.h", wanted, "nccl", SOURCES / "nccl.c")
    common = ["gcc", "-shared", "-fPIC", "-O1", "-w", f"-I{SOURCES}", f"-I{draft}", f"-I{headers}"]
    parts = [str(SOURCES / name) for name in ("runtime.c", "segments.c", "blas.c", "nccl.c")]
    subprocess.run([*common, "-o", str(draft / LIBRARY), *parts, "-lpthread"], check=True)
    subprocess.run([*common, "-o", str(draft / DRIVER), str(SOURCES / "driver.c")], check=True)
    try:
        draft.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(draft)
    return folder


def environment(built: Path, **settings: str) -> dict[str, str]:
    """The environment of a process that sees the pretend device; `settings` are those of `device/runtime.c`."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "LD_PRELOAD": str(built / LIBRARY),
        "LD_LIBRARY_PATH": f"{built}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "OMP_NUM_THREADS": "1",
        **settings,
    }


def _headers() -> Path | None:
    """The folder of CUDA's public headers in the wheels that torch came with."""
    try:
        import nvidia
    except ImportError:
        return None
    found = (header for place in nvidia.__path__ for header in Path(place).rglob("cuda_runtime_api.h"))
    return next((header.parent for header in found), None)


def _open_symbols() -> set[str]:
    """Functions that torch's libraries expect of others."""
    libraries = [str(path) for path in (Path(torch.__file__).parent / "lib").glob("lib*torch*.so")]
    listed = subprocess.run(["nm", "-D", "--undefined-only", *libraries], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines() if line.strip()}


def _write_names(file: Path, wanted: set[str], prefix: str, source: Path) -> None:
    """`RUNS(name)` for functions of the prefix that compute, `SETS(name)` for others; none that `source` has."""
    known = set(re.findall(rf"\b({prefix}\w+)\s*\(", source.read_text()))
    quiet = re.compile(r"Create|Destroy|Get|Set|Attribute|Version")
    names = sorted(name for name in wanted - known if name.startswith(prefix))
    file.write_text("".join(f"{'SETS' if quiet.search(name) else 'RUNS'}({name})\n" for name in names))

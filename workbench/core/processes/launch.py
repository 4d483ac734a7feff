"""How this process was started: alone, or as one rank of many, read from the variables of its launcher.

torchrun, Kubernetes' PyTorchJob, Open MPI's mpirun and SLURM's srun are read, in this order: the innermost launcher
comes first. Variables that describe only a part of a start are refused, since a rank that trains as if it were alone
would write into the folder of the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from workbench.core.errors import WorkbenchError

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""The variables that number the processes of a launcher, the innermost launcher first."""
TORCHRUN = "torchrun --nnodes NODES --nproc-per-node PROCESSES -m workbench ..."
SPECIAL_STEPS = 0xFFFFFFF0
"""SLURM's numbers for steps of its own, such as the shell of salloc, begin here."""
FIRST_PORT, PORTS = 10_000, 20_000
"""Ports below those that Linux uses for outgoing connections (32768 and above)."""

LAST_PORT = 65_535

PATIENCE = "WORKBENCH_PATIENCE"
"""The environment variable with the seconds that a rank waits for the others."""
LONGEST_WAIT = 1800
"""The default of `WORKBENCH_PATIENCE`. It is longer than any save, so that only a rank that hangs is given up."""


@dataclass(frozen=True)
class Launch:
    """The rank of this process, and where the ranks meet.

    Attributes:
        rank, size: of all processes.
        local_rank, local_size: among the processes of this node; None where the launcher does not say.
        address, port: of the store through which the ranks meet; of no use to a single process.
        launcher: `torchrun`, `environment` (only RANK and its companions), `Open MPI`, `SLURM`, or "" for none.
        shares_store: whether torchrun's agent holds the store; otherwise rank 0 does.
        note: what a user may have meant otherwise.
    """

    rank: int = 0
    size: int = 1
    local_rank: int | None = 0
    local_size: int | None = 1
    address: str = ""
    port: int = 0
    launcher: str = ""
    shares_store: bool = False
    note: str = ""


def launch_of(environment: Mapping[str, str]) -> Launch:
    """The launch that these environment variables describe.

    Raises:
        WorkbenchError: a variable is missing, is no number or contradicts another one; the message has the command.
    """
    if _number(environment, "OMPI_COMM_WORLD_SIZE", 1) > 1 and "RANK" not in environment:
        return _open_mpi(environment)
    if "RANK" in environment or (tasks := _tasks(environment)) == 1:
        return _torch(environment)
    return _slurm(environment, tasks)


def check_launch(environment: Mapping[str, str]) -> None:
    """Refuse what `launch_of` or `patience` refuses, before torch is loaded.

    Raises:
        WorkbenchError: as these.
    """
    launch_of(environment)
    patience(environment)


def started(environment: Mapping[str, str]) -> int:
    """The number of processes that the launcher has started, for commands that need no other rank; 1 where its
    variables are incomplete."""
    try:
        return launch_of({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(FIRST_PORT), **environment}).size
    except WorkbenchError:
        return 1


def patience(environment: Mapping[str, str]) -> int:
    """How many seconds a rank waits for the others.

    Raises:
        WorkbenchError: `WORKBENCH_PATIENCE` is not a whole number above 0.
    """
    given = environment.get(PATIENCE, str(LONGEST_WAIT))
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 10**7:
        raise WorkbenchError(f"{PATIENCE} = {given!r}; allowed: a whole number of seconds from 1 to 9999999")
    return int(given)


def is_first(environment: Mapping[str, str]) -> bool:
    """Whether this process is the first of its launcher's, or alone."""
    return next((environment[name] == "0" for name in RANKS if name in environment), True)


def _torch(environment: Mapping[str, str]) -> Launch:
    """RANK and WORLD_SIZE, as torchrun and PyTorchJob set them; a single process without them."""
    size = _number(environment, "WORLD_SIZE", 1)
    if "RANK" not in environment and size > 1:
        _refuse(f"WORLD_SIZE = {size}, and RANK is not set")
    if "RANK" in environment and "WORLD_SIZE" not in environment:
        _refuse(f"RANK = {environment['RANK']}, and WORLD_SIZE is not set")
    if (tasks := _tasks(environment)) > size:
        _refuse(f"srun started {tasks} processes, and WORLD_SIZE = {size}", "unset RANK WORLD_SIZE, or")
    if (started := _number(environment, "OMPI_COMM_WORLD_SIZE", 1)) > size:
        _refuse(f"mpirun started {started} processes, and WORLD_SIZE = {size}", "unset RANK WORLD_SIZE, or")
    rank, local = _rank(environment, "RANK", size), _local(environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE", size)
    if size == 1:
        return Launch(note=_unused_tasks(environment))
    by_torchrun = "TORCHELASTIC_RUN_ID" in environment
    if not by_torchrun and environment.get("PET_NPROC_PER_NODE", "").isdigit():
        _pod(environment)
    return Launch(
        rank,
        size,
        *local,
        *_meeting(environment),
        launcher="torchrun" if by_torchrun else "environment",
        shares_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _pod(environment: Mapping[str, str]) -> None:
    """Refuse the single process of a pod for which PyTorchJob counts several."""
    if (each := _number(environment, "PET_NPROC_PER_NODE", 1)) > 1:
        raise WorkbenchError(
            f"PyTorchJob asks for {each} processes in each pod (nprocPerNode), and this process is the only one of its "
            "pod. Let the pod run: torchrun -m workbench ... (torchrun reads the PET_ variables of PyTorchJob)"
        )


def _open_mpi(environment: Mapping[str, str]) -> Launch:
    size = _number(environment, "OMPI_COMM_WORLD_SIZE", 1)
    if "MASTER_ADDR" not in environment or "MASTER_PORT" not in environment:
        raise WorkbenchError(
            f"mpirun started {size} processes, and MASTER_ADDR or MASTER_PORT is not set: the processes do not know "
            f"where rank 0 runs. Start them by: mpirun -np {size} -x MASTER_ADDR=HOST -x MASTER_PORT=29500 python -m "
            "workbench ... (HOST: the node of rank 0, on one machine 127.0.0.1)"
        )
    if (given := _number(environment, "WORLD_SIZE", size)) != size:
        _refuse(f"mpirun started {size} processes, and WORLD_SIZE = {given}", "unset WORLD_SIZE, or")
    return Launch(
        _rank(environment, "OMPI_COMM_WORLD_RANK", size),
        size,
        *_local(environment, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", size),
        *_meeting(environment),
        launcher="Open MPI",
    )


def _slurm(environment: Mapping[str, str], size: int) -> Launch:
    """The processes of a step that srun started."""
    if (given := _number(environment, "WORLD_SIZE", size)) != size:
        _refuse(f"srun started {size} processes, and WORLD_SIZE = {given}", "unset WORLD_SIZE, or")
    listed = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", ""))
    rank = _rank(environment, "SLURM_PROCID", size)
    if "MASTER_ADDR" not in environment and rank == 0 and environment.get("SLURM_NODEID", "0") != "0":
        _refuse(f"rank 0 runs on node {environment['SLURM_NODEID']} of {listed}", "set MASTER_ADDR to its name, or")
    address = environment.get("MASTER_ADDR") or first_node(listed)
    if not address:
        _refuse(f"srun started {size} processes, and neither SLURM_JOB_NODELIST nor MASTER_ADDR is set")
    counts = _tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = _number(environment, "SLURM_NODEID", 0)
    job, step = _number(environment, "SLURM_JOB_ID", 0), _number(environment, "SLURM_STEP_ID", 0)
    return Launch(
        rank,
        size,
        _optional(environment, "SLURM_LOCALID"),
        counts[node] if node < len(counts) else None,
        address,
        _port(environment, FIRST_PORT + (7 * job + step) % PORTS),
        launcher="SLURM",
    )


def _tasks(environment: Mapping[str, str]) -> int:
    """The processes of the SLURM step that this process belongs to; 1 in a batch script and in salloc's shell."""
    if "SLURM_STEP_ID" not in environment or "SLURM_PROCID" not in environment:
        return 1
    if _number(environment, "SLURM_STEP_ID", 0) >= SPECIAL_STEPS:
        return 1
    return _number(environment, "SLURM_STEP_NUM_TASKS", _number(environment, "SLURM_NTASKS", 1))


def _unused_tasks(environment: Mapping[str, str]) -> str:
    """A note where a job has several tasks, and its script starts one process."""
    tasks = environment.get("SLURM_NTASKS", "1")
    if "RANK" in environment or "SLURM_STEP_ID" in environment or not tasks.isdigit() or int(tasks) < 2:
        return ""
    return f"the SLURM job has {tasks} tasks, and this process runs alone; srun or torchrun starts {tasks} ranks"


def first_node(nodes: str) -> str:
    """The first host of a SLURM node list: `node[01-03,07],other` -> `node01`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0]).strip() if first else ""


def _tasks_per_node(counts: str) -> list[int]:
    """`2(x3),1` -> [2, 2, 2, 1]; [] where it is not known."""
    found = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", count) for count in counts.split(",")]
    return [int(match[1]) for match in found if match for _ in range(int(match[2] or 1))]


def _meeting(environment: Mapping[str, str]) -> tuple[str, int]:
    """The address and port of rank 0."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        _refuse(
            f"several ranks are started, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        )
    return environment["MASTER_ADDR"], _port(environment, 0)


def _port(environment: Mapping[str, str], default: int) -> int:
    port = _number(environment, "MASTER_PORT", default)
    if not 0 < port <= LAST_PORT:
        _refuse(f"MASTER_PORT = {port}; allowed: 1 to {LAST_PORT}")
    return port


def _local(environment: Mapping[str, str], rank: str, size: str, ranks: int) -> tuple[int | None, int | None]:
    """The number of this process among those of its node, and their number; None where the launcher does not say."""
    number, among = _optional(environment, rank), _optional(environment, size)
    if among is not None and not 0 < among <= ranks:
        _refuse(f"{size} = {among}; allowed: 1 to {ranks}, the number of ranks")
    most = ranks if among is None else among
    if number is not None and number >= most:
        _refuse(f"{rank} = {number}; allowed: 0 to {most - 1}, as there are {most} ranks on this node")
    return number, among


def _rank(environment: Mapping[str, str], name: str, size: int) -> int:
    rank = _number(environment, name, 0)
    if rank >= size:
        _refuse(f"{name} = {rank}; allowed: 0 to {size - 1}, as there are {size} ranks")
    return rank


def _optional(environment: Mapping[str, str], name: str) -> int | None:
    return _number(environment, name, 0) if name in environment else None


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    given = environment.get(name, str(default))
    if not given.isascii() or not given.isdigit():
        _refuse(f"{name} = {given!r}; allowed: a number")
    return int(given)


def _refuse(found: str, do: str = "") -> NoReturn:
    raise WorkbenchError(
        f"{found}. {'Unset such variables to train in one process, or' if not do else do[0].upper() + do[1:]} let a "
        f"launcher set them all: {TORCHRUN}, or srun -n PROCESSES python -m workbench ..."
    )

"""What launchers set in the environment, and the ranks that it means."""

from __future__ import annotations

import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.processes.launch import Launch, check_launch, first_node, is_first, launch_of, patience

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
POD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
JOB = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "6", "SLURM_JOB_NODELIST": "node[01-03,07]", "SLURM_PROCID": "0"}
BATCH = {**JOB, "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
SRUN = {
    **JOB,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NODELIST": "node[01-03]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
PLACE = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
SHELL = {**SRUN, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}

READ = {
    "nothing": ({}, Launch()),
    "torchrun": (TORCHRUN, Launch(3, 4, 1, 2, "node1", 29500, "torchrun", shares_store=True)),
    "torchrun with a store of rank 0": (
        {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"},
        Launch(3, 4, 1, 2, "node1", 29500, "torchrun"),
    ),
    "torchrun of one rank": (
        {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        Launch(),
    ),
    "PyTorchJob": (POD, Launch(1, 2, None, None, "job-master-0", 23456, "environment")),
    "PyTorchJob, automatic": (
        {**POD, "PET_NPROC_PER_NODE": "auto"},
        Launch(1, 2, None, None, "job-master-0", 23456, "environment"),
    ),
    "srun": (SRUN, Launch(3, 6, 1, 2, "node01", 22_977, "SLURM")),
    "srun with an address": ({**SRUN, **PLACE}, Launch(3, 6, 1, 2, "node1", 29500, "SLURM")),
    "srun, size exported": ({**SRUN, "WORLD_SIZE": "6"}, Launch(3, 6, 1, 2, "node01", 22_977, "SLURM")),
    "srun of torchrun": (
        {**SRUN, **TORCHRUN, "SLURM_STEP_NUM_TASKS": "2"},
        Launch(3, 4, 1, 2, "node1", 29500, "torchrun", shares_store=True),
    ),
    "srun of one task": ({**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, Launch()),
    "batch script": (
        BATCH,
        Launch(note="the SLURM job has 6 tasks, and this process runs alone; srun or torchrun starts 6 ranks"),
    ),
    "batch script of one task": ({**BATCH, "SLURM_NTASKS": "1"}, Launch()),
    "salloc's shell": (SHELL, Launch()),
    "mpirun": ({**MPI, **PLACE}, Launch(2, 4, 0, 2, "node1", 29500, "Open MPI")),
    "mpirun within srun's daemons": ({**SRUN, **MPI, **PLACE}, Launch(2, 4, 0, 2, "node1", 29500, "Open MPI")),
    "mpirun of one": ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, Launch()),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str) -> None:
    environment, launch = READ[name]
    assert launch_of(environment) == launch


def without(environment: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in names}


REFUSED = {
    "no rank": ({"WORLD_SIZE": "2"}, "WORLD_SIZE = 2, and RANK is not set"),
    "no size": ({"RANK": "1"}, "RANK = 1, and WORLD_SIZE is not set"),
    "no number": ({**TORCHRUN, "WORLD_SIZE": "two"}, "WORLD_SIZE = 'two'"),
    "alone, and too high": ({"RANK": "5", "WORLD_SIZE": "1"}, "RANK = 5; allowed: 0 to 0"),
    "alone, and no number": ({"LOCAL_WORLD_SIZE": "abc"}, "LOCAL_WORLD_SIZE = 'abc'; allowed: a number"),
    "nobody on the node": ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE = 0; allowed: 1 to 1"),
    "more on the node than ranks": ({**TORCHRUN, "LOCAL_WORLD_SIZE": "5"}, "LOCAL_WORLD_SIZE = 5; allowed: 1 to 4"),
    "too high on the node": (
        {**TORCHRUN, "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"},
        "LOCAL_RANK = 2; allowed: 0 to 1",
    ),
    "no such port": ({**TORCHRUN, "MASTER_PORT": "99999"}, "MASTER_PORT = 99999; allowed: 1 to 65535"),
    "more of mpirun": ({**TORCHRUN, "OMPI_COMM_WORLD_SIZE": "5"}, "mpirun started 5 processes, and WORLD_SIZE = 4"),
    "another number of mpirun": (
        {"OMPI_COMM_WORLD_SIZE": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        "mpirun started 2 processes, and WORLD_SIZE = 3",
    ),
    "too high": ({**TORCHRUN, "RANK": "4"}, "RANK = 4; allowed: 0 to 3"),
    "no address": (without(POD, "MASTER_ADDR"), "MASTER_ADDR is not set"),
    "no place": (without(POD, "MASTER_ADDR", "MASTER_PORT"), "MASTER_ADDR and MASTER_PORT are not set"),
    "a process of a pod of eight": ({**POD, "PET_NPROC_PER_NODE": "8"}, r"torchrun -m workbench"),
    "twice the same rank": ({**SRUN, "RANK": "0", "WORLD_SIZE": "1"}, "srun started 6 processes, and WORLD_SIZE = 1"),
    "two sizes": ({**SRUN, "WORLD_SIZE": "4"}, "srun started 6 processes, and WORLD_SIZE = 4"),
    "no nodes": (without(SRUN, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"), "SLURM_JOB_NODELIST"),
    "rank 0 elsewhere": ({**SRUN, "SLURM_PROCID": "0"}, "rank 0 runs on node 1"),
    "mpirun": (MPI, "mpirun -np 4 -x MASTER_ADDR=HOST"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    environment, reported = REFUSED[name]
    with pytest.raises(WorkbenchError, match=reported):
        launch_of(environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node[01-03,07]", "node01"),
        ("node7", "node7"),
        ("a,b[1-2]", "a"),
        ("rack[1-2]n[03,05]-ib,z", "rack1n03-ib"),
        ("gpu[9]", "gpu9"),
        ("", ""),
    ],
)
def test_first_node(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


@pytest.mark.parametrize(
    ("environment", "first"),
    [({}, True), ({"RANK": "0", "SLURM_PROCID": "1"}, True), ({"SLURM_PROCID": "1"}, False), ({"RANK": "1"}, False)],
)
def test_the_first_process(environment: dict[str, str], first: bool) -> None:
    assert is_first(environment) == first


@pytest.mark.parametrize("given", ["0", "soon", "-3", "1.5"])
def test_patience_is_a_number(given: str) -> None:
    assert patience({}) == 1800
    with pytest.raises(WorkbenchError, match="a whole number of seconds"):
        check_launch({"WORKBENCH_PATIENCE": given})

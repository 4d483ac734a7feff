"""The connection of a command to a Ray cluster: how it begins, and how each of its ends is reported."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from pipelines.preparing.engines.engine import RESUMED
from pipelines.preparing.engines.local import GROUP, held_back
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.processes.children import cores

STORE = (80 << 20, 2 << 30)
"""The smallest and largest object store of a cluster of our own, in bytes."""
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
OWN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""More of them for a cluster of our own: who lacks this process's token runs nothing there. Ray reads them when it is
imported."""
REACHED = 10.0
"""Seconds within which the address of a cluster accepts a connection."""
ENDED = (
    "error: Ray has ended this command, as one of its own processes on this machine was lost (raylet, gcs_server or an "
    "agent; as a rule the memory was full, or `ray stop` was called); or the command was killed. "
    f"{RESUMED}. Where the cluster of --address has ended, start it first"
)
WITNESS = 'trap "" INT TERM HUP; read -r said || printf "%s\\n" "$SAID" >&2'
"""A shell that prints a variable, unless a line comes before the end of its input. It is no argument: `ray stop` ends
processes whose arguments have names of Ray's processes."""


@contextmanager
def witnessed() -> Iterator[None]:
    """Within, a line is printed where this process ends without one.

    When Ray loses its processes on this machine, its code ends this one at once (`_Exit`), and no Python code runs any
    more. So another process waits for the end of a pipe.
    """
    shell = subprocess.Popen(
        ["/bin/sh", "-c", WITNESS],
        env={**os.environ, "SAID": ENDED},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # a signal of the terminal is for this process
    )
    try:
        yield
    finally:
        with suppress(OSError):
            shell.communicate(b"\n")


def connect(ray: Any, workers: int, address: str | None) -> None:
    """Connect to the cluster at the address, or start one on this machine.

    Raises:
        WorkbenchError: there is no cluster at the address, or it has another version of Ray or Python.
        MachineError: Ray cannot be started on this machine.
    """
    silence(ray)
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = address is not None  # else all listens on the loopback address
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    before = {number: signal.getsignal(number) for number in GROUP}
    try:
        with held_back(blocked_in_children=False):
            if address is not None:
                _check_reached(address)
                ray.init(address=address, **quiet)
            else:
                least, most = STORE
                store = max(least, min(most, psutil.virtual_memory().available // 10))
                count = workers or cores()
                ray.init("local", num_cpus=count, include_dashboard=False, object_store_memory=store, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().partition("\n")[0]
        if address is None:
            raise MachineError(f"Ray could not be started on this machine: {said}") from error
        raise WorkbenchError(
            f"--address {address}: no Ray cluster of this version can be used there ({said}). Start one with "
            "`ray start --head`, or leave --address out to use this machine"
        ) from error
    finally:
        with suppress(ValueError):  # outside of the main thread there are no handlers
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_reached(address: str) -> None:
    """Ray itself tries for two minutes.

    Raises:
        OSError: nothing accepts connections at HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in address:
        socket.create_connection((host, int(port)), REACHED).close()


def silence(ray: Any) -> None:
    """Ray prints advice, and a paragraph for every lost worker; the engine logs what matters."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray._private.worker.print_to_stdstream = lambda *lines, **options: None


@contextmanager
def explained_loss(ray: Any) -> Iterator[None]:
    """
    Raises:
        MachineError: the connection to the cluster was lost.
        Exception: a bug in the code of a worker.
    """
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        said = str(error).strip().partition("\n")[0]
        raise MachineError(f"the Ray cluster was lost: {said}. {RESUMED}") from error

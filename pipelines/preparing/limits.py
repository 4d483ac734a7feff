"""How the work of a preparation is cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.errors import WorkbenchError
from workbench.processes.cores import cores


@dataclass(frozen=True)
class Limits:
    """How the work is cut: `workers` processes (1 = this one), shards of at most `shard_size` records and about
    `shard_bytes` bytes of raw input, at most `limit` records of the input."""

    workers: int = field(default_factory=cores)
    shard_size: int = 5_000
    shard_bytes: int = 128 << 20
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "shard_size", "shard_bytes", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WorkbenchError(f"--{name.replace('_', '-')} = {value}; it must be at least 1")

"""How the work of a preparation is cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.errors import WorkbenchError
from workbench.processes.cores import cores


@dataclass(frozen=True)
class Limits:
    """How the work is cut: `workers` processes (1 = this one), shards of at most `shard_size` records and about
    `shard_bytes` bytes of raw input, at most `limit` records of the input; of `part` i/n each n-th shard."""

    workers: int = field(default_factory=cores)
    shard_size: int = 5_000
    shard_bytes: int = 128 << 20
    limit: int | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "shard_size", "shard_bytes", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WorkbenchError(f"--{name.replace('_', '-')} = {value}; it must be at least 1")
        number, parts = self._numbers
        if not 1 <= number <= parts:
            raise WorkbenchError(f"--part {self.part}: there are {parts} parts, from 1/{parts} to {parts}/{parts}")

    @property
    def _numbers(self) -> tuple[int, int]:
        number, _, parts = (self.part or "1/1").partition("/")
        return int(number), int(parts)

    def has(self, shard: int) -> bool:
        """Whether a shard, by its number from 0, is of this part."""
        number, parts = self._numbers
        return shard % parts == number - 1

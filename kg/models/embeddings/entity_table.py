"""The embedding of the entity stream: rows of a table of pretrained entity vectors.

Zhang et al., "ERNIE: Enhanced Language Representation with Informative Entities", ACL 2019 (arXiv 1905.07129): frozen
TransE vectors, with a zero vector in front for "no entity".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from kg.graph.shuffle import FALSE_FACTS
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import normals
from workbench.core.options.bounds import Count, Location, Name, Seed, Size
from workbench.models.compilation import uncompiled
from workbench.parallel.sharded_table import ShardedTable
from workbench.sequences.entities import Entities
from workbench.sequences.fetched_rows import FetchedRows

BLOCK = 2**16
"""Rows that are drawn at once where the whole table is."""
UNDER: dict[str | None, str] = {"shuffled-kg": "with its tails shuffled", "permuted-kg": "with its tails permuted"}
SHARE = 1 / 10
"""The share of a GPU's memory that a frozen table may take."""


class EntityTableEmbedding(nn.Module):
    """Table of pretrained entity vectors for the entity stream. `entity_ids` r > 0 is row r - 1 of the table, and 0 is
    the zero vector.

    A frozen table is neither a parameter nor a buffer: it stays in its memory-mapped file, and the rows of a batch are
    fetched from there: no process holds a copy of millions of vectors. A GPU that has room (`SHARE`) gets a copy with
    the first batch. For another GPU the loader's workers read the rows, which are a part of the micro-batch.
    Checkpoints leave the table out, and a run names its file. Under the control `random-entities` the rows are fetched
    likewise, for their lengths, and drawn.

    A trainable table is a parameter like any other (`rows: whole`), or too large for one process (`rows: sharded`):
    every rank then holds some rows, and a step looks up, sends and updates the rows of its batch alone
    (`workbench.parallel.sharded_table`). Its moments are those of lazy Adam.

    Args:
        path: file of entity vectors (`kg.vectors.vectors`), or the vectors [entities, hidden_size] themselves; of a
            trainable table also the number of entities, whose vectors then begin as random ones of the size
            `model.init_range`.
        trainable: learn the vectors too.
        rows: `sharded` divides the rows of a trainable table over the ranks.
        memory: where a rank holds its rows and moments of a sharded table: with the model (`device`), or in the host's
            memory.
        hidden_size: what the recipe expects the vectors' size to be; a table of another size is refused.
        shuffled: file of vectors of the shuffled graph (`prepare vectors --shuffled`), for the control shuffled-kg.
        permuted: the same of the permuted graph (`--permuted`), for the control permuted-kg.
        control: the recipe's; `random-entities` replaces each vector by a random one of the same length, which depends
            on its row and the seed alone; `shuffled-kg` takes the vectors of the shuffled graph, `permuted-kg`
            those of the permuted one.
        seed: of those random vectors.
    """

    row_field = "entity_ids"
    controls = ("random-entities", *FALSE_FACTS)
    unaffected_by = ("no-kg", "mentions-only")  # it is who makes the rows that names entities

    def __init__(
        self,
        path: Location | Count | Tensor,
        trainable: bool = False,
        hidden_size: Size | None = None,
        shuffled: Location | None = None,
        control: Name | None = None,
        seed: Seed = 0,
        permuted: Location | None = None,
        rows: Literal["whole", "sharded"] = "whole",
        memory: Literal["device", "host"] = "device",
    ) -> None:
        super().__init__()
        _check_options(path, trainable, hidden_size, control, rows, memory)
        self.path = path if isinstance(path, str) else None
        self.seed = seed
        self.fetched: FetchedRows | None = None
        self.table: ShardedTable | None = None
        self.keeps_values = not isinstance(path, int)
        if isinstance(path, int):
            assert hidden_size is not None
            vectors = torch.empty(0 if rows == "sharded" else path, hidden_size)
        elif control in FALSE_FACTS:
            vectors = _of_false(path, control, {"shuffled-kg": shuffled, "permuted-kg": permuted}[control])
        else:
            vectors = _read(path) if isinstance(path, str) else path
        if hidden_size is not None and vectors.shape[1] != hidden_size:
            raise WorkbenchError(
                f"the entity vectors{f' of {path}' if isinstance(path, str) else ''} have size {vectors.shape[1]}, the "
                f"recipe says hidden_size = {hidden_size}; correct it, or leave it out to take the table's"
            )
        self.hidden_size = int(vectors.shape[1])
        self.drawn_with = seed if control == "random-entities" and not trainable else None
        self._copy: Tensor | None = None
        if rows == "sharded":
            self.table = ShardedTable(
                path if isinstance(path, int) else len(vectors), self.hidden_size, memory == "host"
            )
            if self.keeps_values:
                drawn = control == "random-entities"
                self.table.fill(lambda at: randomised(vectors[at], at, seed) if drawn else vectors[at].float())
            return
        if trainable and control == "random-entities":
            vectors = _randomised_whole(vectors, seed)
        # as a plain attribute `Module.to` leaves it where it is
        self.vectors = nn.Parameter(vectors.clone().float()) if trainable else vectors

    def initialise(self, scale: float) -> None:
        """The first vectors of a table that no file has: normal numbers that depend on a row and the seed alone."""

        def values(rows: Tensor) -> Tensor:
            return torch.from_numpy(normals(rows.numpy(), self.hidden_size, "entity-table", self.seed)) * scale

        if self.table is not None:
            self.table.fill(values)
        elif not self.vectors.is_meta:
            with torch.no_grad():
                for block in torch.arange(len(self.vectors)).split(BLOCK):
                    self.vectors[block] = values(block)

    def fetches(self, device: torch.device) -> Callable[[Tensor], Tensor | None] | None:
        """How rows are had before a forward pass (`workbench.pretraining.table_lookups`)."""
        if self.table is not None:
            return lambda rows: None
        if isinstance(self.vectors, nn.Parameter) or device.type == "cpu" or self._has_room(device):
            return None
        return self._from_file

    def known_entities(self) -> Entities | None:
        """The ids of its rows, in order; None if the vectors themselves were passed."""
        return None if self.path is None else _listed(self.path)

    @uncompiled  # a file's pages are no part of a graph
    def _fetched(self, rows: Tensor) -> Tensor:
        """[rows, hidden_size] float32 on the device of `rows`."""
        if (table := self._on(rows.device)) is not None:
            return table[rows].float()
        return self._from_file(rows.to(self.vectors.device)).to(rows.device).float()

    def _from_file(self, rows: Tensor) -> Tensor:
        found = self.vectors[rows]
        return found if self.drawn_with is None else randomised(found, rows, self.drawn_with)

    def _on(self, device: torch.device) -> Tensor | None:
        """The table on this device, where it is there or has room."""
        if self.drawn_with is None and self.vectors.device == device:
            return self.vectors
        if device.type == "cpu":
            return None
        if self._copy is None or self._copy.device != device:
            if not self._has_room(device):
                return None
            whole = self.vectors if self.drawn_with is None else _randomised_whole(self.vectors, self.drawn_with)
            self._copy = whole.to(device)
        return self._copy

    def _has_room(self, device: torch.device) -> bool:
        """Whether a GPU has room for a copy of the table."""
        if device.type != "cuda":
            return True
        return self.vectors.nbytes <= SHARE * torch.cuda.get_device_properties(device).total_memory

    def no_weight_decay(self) -> set[str]:
        """Entities that no batch names would fade away."""
        return {"vectors"}

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`entity_ids` [rows] -> float32 [rows, hidden_size]."""
        ids = fields[self.row_field]
        if self.table is not None:
            return torch.where((ids > 0).unsqueeze(-1), self.table(ids - 1), 0.0)
        if self.fetched is not None:
            return torch.where((ids > 0).unsqueeze(-1), self.fetched.pick(ids - 1).float(), 0.0)
        rows = self._fetched((ids - 1).clamp_min(0))
        return rows * (ids > 0).unsqueeze(-1)


def _check_options(
    path: str | int | Tensor, trainable: bool, hidden_size: int | None, control: str | None, rows: str, memory: str
) -> None:
    """
    Raises:
        WorkbenchError: options that do not fit each other.
    """
    if rows == "sharded" and not trainable:
        raise WorkbenchError(
            "kg.entity_table: rows = 'sharded' is for a trainable table; a frozen one stays in its file, and no "
            "process holds it. Leave `rows` out, or set trainable: true"
        )
    if memory == "host" and rows != "sharded":
        raise WorkbenchError("kg.entity_table: memory = 'host' is for rows: sharded; leave it out, or set both")
    if isinstance(path, int) and (not trainable or hidden_size is None or control in FALSE_FACTS):
        raise WorkbenchError(
            f"kg.entity_table: path = {path} is a number of entities without vectors: set trainable: true and "
            f"hidden_size, and no control of false facts (found {control or 'none'}), or name a file of entity vectors"
        )


def randomised(vectors: Tensor, rows: Tensor, seed: int) -> Tensor:
    """Random directions with the length of each vector [rows, size]: what is left when knowledge is taken out.

    Args:
        rows: where in their table the vectors lie [rows]; decides, with the seed, what is drawn.
    """
    noise = torch.from_numpy(normals(rows.numpy(), vectors.shape[1], "random-entities", seed))
    return nn.functional.normalize(noise, dim=1) * vectors.float().norm(dim=1, keepdim=True)


def _randomised_whole(vectors: Tensor, seed: int) -> Tensor:
    """As `randomised`, of all rows of a table."""
    blocks = torch.arange(len(vectors)).split(BLOCK)
    return torch.cat([randomised(vectors[block], block, seed) for block in blocks])


def _read(path: str) -> Tensor:
    from kg.vectors.vectors import load_vectors

    return load_vectors(path).vectors


def _of_false(path: str | int | Tensor, control: str, false: str | None) -> Tensor:
    """The vectors of a control's graph, once they are known to be that, for the entities of `path` in its order."""
    from kg.vectors.vectors import load_vectors

    kind = control.removesuffix("-kg")
    advice = f"`workbench prepare vectors GRAPH --{kind} --output FILE` trains them"
    if false is None:
        raise WorkbenchError(
            f"the control {control} needs vectors of the {kind} graph: name their file as `{kind}` of "
            f"kg.entity_table; {advice}"
        )
    found = load_vectors(false)
    if found.control != control:
        raise WorkbenchError(
            f"the vectors of {false} are those of a graph {UNDER.get(found.control, 'as it is')}, not of a {kind} one; "
            f"{advice}"
        )
    if isinstance(path, str) and not _listed(path).same(_listed(false)):
        raise WorkbenchError(
            f"the vectors of {false} are of other entities than those of {path}, or in another order; train both on "
            "one graph"
        )
    return found.vectors


def _listed(path: str) -> Entities:
    from kg.vectors.vectors import load_vectors

    found = load_vectors(path)
    return Entities(path, found.ids, found.space)

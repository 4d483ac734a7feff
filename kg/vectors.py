"""Vectors of entities and relations: trained with pykeen, kept in one safetensors file with the ids they belong to.

The file holds `entity` [entities, size] and `relation` [relations, size] float32, `entity_ids` and `relation_ids`
(lists of strings as JSON, in bytes), and in its metadata how the vectors were made and a checksum of all that. A model
with complex vectors (RotatE, ComplEx) gives their real and imaginary parts in turn.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kg.linkprediction import LinkPrediction, link_prediction, rows_of
from kg.store import GraphStore
from workbench.checksums import matches
from workbench.corpora.files import sha256_of
from workbench.errors import WorkbenchError, unknown
from workbench.identities import note
from workbench.training.weights import save_tensors

if TYPE_CHECKING:
    from pykeen.models import ERModel

log = logging.getLogger(__name__)
TENSORS = ("entity", "relation", "entity_ids", "relation_ids")
CHECKSUM = "sha256"


@dataclass(frozen=True)
class Vectors:
    """`vectors` [entities, size] by row of `ids`, `relations` [relations, size] by row of `relation_ids`, float32."""

    ids: list[str]
    vectors: Tensor
    relation_ids: list[str]
    relations: Tensor
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each entity id."""
        return {entity: row for row, entity in enumerate(self.ids)}


def train_vectors(
    store: GraphStore,
    output: str | Path,
    *,
    model: str = "TransE",
    dim: int = 100,
    epochs: int = 50,
    batch_size: int = 1024,
    lr: float = 0.01,
    negatives: int = 16,
    loss: str = "nssa",
    seed: int = 0,
    device: str = "cpu",
    held_out: Iterable[tuple[str, str, str]] = (),
    progress: bool = False,
) -> Vectors:
    """Train vectors of a graph and write them to the file `output`; the same arguments give the same vectors on a CPU.

    Negative samples replace the head or the tail of a triple at random (Bordes et al., "Translating Embeddings for
    Modeling Multi-relational Data", NeurIPS 2013); the default loss is self-adversarial (Sun et al., arXiv 1902.10197).

    Args:
        model: pykeen's name of an embedding model.
        negatives: for each triple.
        loss: pykeen's name of a loss (`nssa`, `marginranking`, `softplus`, ...).
        held_out: triples to rank after training; the numbers go into the provenance.

    Raises:
        WorkbenchError: unknown model or loss, a graph without triples, or `output` is no `.safetensors` file.
    """
    output = Path(output)
    if output.suffix != ".safetensors":
        raise WorkbenchError(f"vectors are written to a .safetensors file; {output} has another ending")
    if not store.num_triples:
        raise WorkbenchError(f"the graph {store.path} has no triples to train vectors on")
    options = {"dim": dim, "epochs": epochs, "batch_size": batch_size, "lr": lr, "negatives": negatives, "loss": loss}
    with torch.random.fork_rng(devices=[]):
        network = _network(store, model, dim, loss, seed).to(device)
        losses = _fit(network, store, epochs, batch_size, lr, negatives, progress)
    provenance: dict[str, Any] = {
        "model": model,
        **options,
        "seed": seed,
        "graph": {"path": str(store.path), "shuffled": store.seed, **store.meta},
        "pykeen": version("pykeen"),
        "torch": str(torch.__version__),
        "final_loss": losses[-1] if losses else None,
    }
    tested = rank_held_out(network, store, held_out)
    if tested is not None:
        provenance["link_prediction"] = tested.as_dict()
    vectors = Vectors(
        list(store.ids),
        _plain(network.entity_representations[0]()),
        list(store.relation_ids),
        _plain(network.relation_representations[0]()),
        provenance,
    )
    save_vectors(vectors, output)
    return vectors


def rank_held_out(
    network: ERModel, store: GraphStore, held_out: Iterable[tuple[str, str, str]]
) -> LinkPrediction | None:
    """Filtered ranks of held-out triples; None where there are none."""
    triples, left_out = rows_of(store, held_out)
    if left_out:
        log.warning("%d held-out triples name an entity or relation that the graph does not hold: left out", left_out)
    if not len(triples):
        return None
    return link_prediction(PykeenScores(network), triples, store.triple_rows, store.num_relations)


class PykeenScores:
    """Scores of all entities from a pykeen model, for `kg.linkprediction`."""

    def __init__(self, network: ERModel) -> None:
        self.network = network.eval()

    @torch.inference_mode()
    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (h, r, ?)."""
        return self.network.score_t(torch.stack([heads, relations], dim=1).to(self.network.device)).cpu()

    @torch.inference_mode()
    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (?, r, t)."""
        return self.network.score_h(torch.stack([relations, tails], dim=1).to(self.network.device)).cpu()


def save_vectors(vectors: Vectors, path: str | Path) -> None:
    """Write the file, whole or not at all."""
    path = Path(path)
    tensors = {
        "entity": vectors.vectors.contiguous(),
        "relation": vectors.relations.contiguous(),
        "entity_ids": _packed(vectors.ids),
        "relation_ids": _packed(vectors.relation_ids),
    }
    provenance = json.dumps(vectors.provenance)
    save_tensors(path, tensors, {"format": "pt", "provenance": provenance, CHECKSUM: _checksum(tensors, provenance)})


def load_vectors(path: str | Path) -> Vectors:
    """The vectors of a file; the tensors stay memory-mapped until they are used.

    Raises:
        WorkbenchError: there is no such file, it does not hold vectors with ids, or it was changed or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise WorkbenchError(
            f"there is no file {path} with entity vectors; `workbench prepare vectors GRAPH --output {path}` trains "
            "them"
        )
    tensors, metadata = _read(path)
    checksum = metadata.get(CHECKSUM)
    if checksum is not None and not matches(path, checksum, lambda p: _checksum_of(*_read(p))):
        raise WorkbenchError(f"{path} was changed or damaged after it was written; train the vectors again")
    note("vectors", path, checksum or sha256_of(path))
    try:
        ids, relation_ids = _unpacked(tensors["entity_ids"]), _unpacked(tensors["relation_ids"])
        provenance = json.loads(metadata.get("provenance", "{}"))
    except ValueError as error:
        raise WorkbenchError(f"{path} is damaged: its ids are no JSON ({error}); train the vectors again") from error
    found = Vectors(ids, tensors["entity"], relation_ids, tensors["relation"], provenance)
    if found.vectors.ndim != 2 or len(ids) != len(found.vectors):
        raise WorkbenchError(
            f"{path} has vectors {list(found.vectors.shape)} and {len(ids)} entity ids; allowed: [entities, size] and "
            "an id for each"
        )
    return found


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, memory-mapped, and the metadata of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            missing = sorted(set(TENSORS) - set(file.keys()))
            if missing:
                raise WorkbenchError(
                    f"{path} lacks {', '.join(missing)} (found {', '.join(sorted(file.keys()))}); entity vectors are "
                    "made by `workbench prepare vectors`"
                )
            return {name: file.get_tensor(name) for name in TENSORS}, file.metadata() or {}
    except SafetensorError as error:
        raise WorkbenchError(f"{path} is no safetensors file, or damaged ({error})") from error


def _checksum_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    return _checksum(tensors, metadata.get("provenance", ""))


def _checksum(tensors: Mapping[str, Tensor], provenance: str) -> str:
    """The SHA-256 checksum of the tensors, their types and shapes, and the provenance."""
    state = hashlib.sha256(provenance.encode())
    for name in TENSORS:
        tensor = tensors[name].contiguous()
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(tensor.flatten().view(torch.uint8).numpy().data)
    return state.hexdigest()


def _network(store: GraphStore, model: str, dim: int, loss: str, seed: int) -> ERModel:
    try:
        from pykeen.losses import loss_resolver
        from pykeen.models import ERModel, model_resolver
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"training vectors needs the package {error.name!r}: pip install 'pretraining-workbench[kg]'"
        ) from error

    # a name that pykeen does not know makes its resolver raise a ValueError; ask first, to name the nearest
    models = {name for name, kind in model_resolver.lookup_dict.items() if issubclass(kind, ERModel)}
    if model_resolver.normalize(model) not in models:
        raise unknown("embedding model", model, models)
    if loss_resolver.normalize(loss) not in loss_resolver.lookup_dict:
        raise unknown("loss", loss, loss_resolver.lookup_dict)
    triples = _triples(store)
    network = model_resolver.make(model, triples_factory=triples, embedding_dim=dim, loss=loss, random_seed=seed)
    assert isinstance(network, ERModel)
    return network


def _fit(
    network: ERModel, store: GraphStore, epochs: int, batch_size: int, lr: float, negatives: int, progress: bool
) -> list[float]:
    """Mean loss of each epoch."""
    from pykeen.training import SLCWATrainingLoop

    triples = _triples(store)
    loop = SLCWATrainingLoop(
        model=network,
        triples_factory=triples,
        optimizer=torch.optim.Adam(network.parameters(), lr=lr),
        negative_sampler_kwargs={"num_negs_per_pos": negatives},
        automatic_memory_optimization=False,  # it makes a trial run to find a batch size
    )
    gc.freeze()  # pykeen collects garbage after every epoch: 0.2 s each over the modules that are loaded anyway
    try:
        losses = loop.train(
            triples,
            num_epochs=epochs,
            batch_size=batch_size,
            num_workers=0,
            pin_memory=network.device.type == "cuda",
            use_tqdm=progress,
            use_tqdm_batch=False,
        )
    finally:
        gc.unfreeze()
    return losses or []


def _triples(store: GraphStore) -> Any:
    from pykeen.triples import CoreTriplesFactory

    return CoreTriplesFactory(torch.from_numpy(store.triple_rows).long(), store.num_entities, store.num_relations)


def _plain(representation: Tensor) -> Tensor:
    """[rows, size] float32, detached, on the CPU."""
    if representation.is_complex():
        representation = torch.view_as_real(representation)
    return representation.detach().flatten(1).float().cpu()


def _packed(ids: list[str]) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(ids, ensure_ascii=False).encode()), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> list[str]:
    """Raises ValueError where it is no list of strings as JSON."""
    names = json.loads(packed.numpy().tobytes())
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of strings")
    return names

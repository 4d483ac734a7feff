"""Training vectors of the entities and relations of a graph, with pykeen."""

from __future__ import annotations

import dataclasses
import gc
import logging
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.vectors.link_prediction import LinkPrediction, link_prediction, rows_of
from kg.vectors.options import VectorOptions
from kg.vectors.vectors import Vectors, save_vectors
from workbench.errors import WorkbenchError, unknown

if TYPE_CHECKING:
    from pykeen.models import ERModel

log = logging.getLogger(__name__)

Triple = tuple[str, str, str]


def train_vectors(
    store: GraphStore,
    output: str | Path,
    options: VectorOptions | None = None,
    *,
    device: str = "cpu",
    held_out: Iterable[Triple] = (),
    known: Iterable[Triple] = (),
    progress: bool = False,
) -> Vectors:
    """Train vectors of a graph and write them to the file `output`; the same arguments give the same vectors on a CPU.

    Negative samples replace the head or the tail of a triple at random (Bordes et al., "Translating Embeddings for
    Modeling Multi-relational Data", NeurIPS 2013); the default loss is self-adversarial (Sun et al., arXiv 1902.10197).

    Args:
        options: the model and its training; None for the defaults.
        held_out: triples to rank when the vectors are written; the numbers go into the provenance.
        known: other true triples, the other held-out parts: they filter the ranks, as the graph's own and those of
            `held_out` do.

    Raises:
        WorkbenchError: unknown model or loss, a graph without triples, or `output` is no `.safetensors` file.
    """
    output = Path(output)
    if output.suffix != ".safetensors":
        raise WorkbenchError(f"vectors are written to a .safetensors file; {output} has another ending")
    if not store.num_triples:
        raise WorkbenchError(f"the graph {store.path} has no triples to train vectors on")
    options = options or VectorOptions()
    with torch.random.fork_rng(devices=[]):
        network = _network(store, options).to(device)
        losses = _fit(network, store, options, progress)
    provenance: dict[str, Any] = {
        **dataclasses.asdict(options),
        "graph": {"path": str(store.path), "shuffled": store.seed, "true_share": store.true_share, **store.meta},
        "pykeen": version("pykeen"),
        "torch": str(torch.__version__),
        "final_loss": losses[-1] if losses else None,
    }
    vectors = Vectors(
        list(store.ids),
        _plain(network.entity_representations[0]()),
        list(store.relation_ids),
        _plain(network.relation_representations[0]()),
        provenance,
    )
    save_vectors(vectors, output)  # ranking takes long: whoever stops it has the vectors
    tested = rank_held_out(network, store, held_out, known)
    if tested is not None:
        provenance["link_prediction"] = tested.as_dict()
        save_vectors(vectors, output)
    return vectors


def rank_held_out(
    network: ERModel, store: GraphStore, held_out: Iterable[Triple], known: Iterable[Triple] = ()
) -> LinkPrediction | None:
    """Filtered ranks of held-out triples; None where there are none."""
    triples, left_out = rows_of(store, held_out)
    if left_out:
        log.warning("%d held-out triples name an entity or relation that the graph does not hold: left out", left_out)
    if not len(triples):
        return None
    filtering = np.concatenate([store.triple_rows, rows_of(store, known)[0]])
    return link_prediction(PykeenScores(network), triples, filtering, store.num_relations)


class PykeenScores:
    """Scores of all entities from a pykeen model, for `kg.vectors.link_prediction`."""

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


def _network(store: GraphStore, options: VectorOptions) -> ERModel:
    try:
        from pykeen.losses import loss_resolver
        from pykeen.models import ERModel, model_resolver
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"training vectors needs the package {error.name!r}: pip install 'pretraining-workbench[kg]'"
        ) from error

    # pykeen lets its logger tell everybody what its defaults are ("Inferred unique=False for Embedding()")
    logging.getLogger("pykeen").setLevel(logging.WARNING)

    # a name that pykeen does not know makes its resolver raise a ValueError; ask first, to name the nearest
    models = {name for name, kind in model_resolver.lookup_dict.items() if issubclass(kind, ERModel)}
    if model_resolver.normalize(options.model) not in models:
        raise unknown("embedding model", options.model, models)
    if loss_resolver.normalize(options.loss) not in loss_resolver.lookup_dict:
        raise unknown("loss", options.loss, loss_resolver.lookup_dict)
    network = model_resolver.make(
        options.model,
        triples_factory=_triples(store),
        embedding_dim=options.dim,
        loss=options.loss,
        random_seed=options.seed,
    )
    assert isinstance(network, ERModel)
    return network


def _fit(network: ERModel, store: GraphStore, options: VectorOptions, progress: bool) -> list[float]:
    """Mean loss of each epoch."""
    from pykeen.training import SLCWATrainingLoop

    triples = _triples(store)
    loop = SLCWATrainingLoop(
        model=network,
        triples_factory=triples,
        optimizer=torch.optim.Adam(network.parameters(), lr=options.lr),
        negative_sampler_kwargs={"num_negs_per_pos": options.negatives},
        automatic_memory_optimization=False,  # it makes a trial run to find a batch size
    )
    gc.freeze()  # pykeen collects garbage after every epoch: 0.2 s each over the modules that are loaded anyway
    try:
        losses = loop.train(
            triples,
            num_epochs=options.epochs,
            batch_size=options.batch_size,
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

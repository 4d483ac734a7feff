"""pykeen's embedding models of a graph: made by name, read out as plain vectors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.vectors.options import VectorOptions
from kg.vectors.scores import MORE_OF, plain_name
from workbench.core.errors import WorkbenchError, unknown

if TYPE_CHECKING:
    from pykeen.models import ERModel


def make_network(store: GraphStore, options: VectorOptions) -> ERModel:
    """The model of `options`, with fresh weights drawn with its seed.

    Raises:
        WorkbenchError: pykeen is not installed, has no such model or loss, or cannot make the model of triples alone.
    """
    try:
        from pykeen.losses import loss_resolver
        from pykeen.models import ERModel, model_resolver
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"training vectors needs the package {error.name!r}: pip install 'pretraining-workbench[kg]'"
        ) from error

    # pykeen logs its defaults ("Inferred unique=False for Embedding()")
    logging.getLogger("pykeen").setLevel(logging.WARNING)

    # a name that pykeen does not know makes its resolver raise a ValueError; ask first, to name the nearest
    models = {name for name, kind in model_resolver.lookup_dict.items() if issubclass(kind, ERModel)}
    if model_resolver.normalize(options.model) not in models:
        raise unknown("embedding model", options.model, models)
    if loss_resolver.normalize(options.loss) not in loss_resolver.lookup_dict:
        raise unknown("loss", options.loss, loss_resolver.lookup_dict)
    try:
        network = model_resolver.make(
            options.model,
            triples_factory=triples_of(store, options),
            embedding_dim=options.dim,
            loss=options.loss,
            random_seed=options.seed,
        )
    except (AssertionError, AttributeError, TypeError, ValueError) as error:  # pykeen's ways to refuse
        said = f" ({str(error).strip().splitlines()[0]})" if str(error).strip() else ""
        advice = "leave --inverse out" if options.inverse else "try --inverse"
        raise WorkbenchError(
            f"pykeen makes no {options.model} of size {options.dim} of this graph{said}; {advice}, or take a model "
            "that reads nothing but triples, such as TransE, DistMult, ComplEx or RotatE"
        ) from error
    assert isinstance(network, ERModel)
    return network


def triples_of(store: GraphStore, options: VectorOptions) -> Any:
    """The graph's triples as pykeen's factory, with their inverses where the options say so."""
    from pykeen.triples import CoreTriplesFactory

    rows = torch.from_numpy(store.triple_rows).long()
    return CoreTriplesFactory(rows, store.num_entities, store.num_relations, create_inverse_triples=options.inverse)


def entity_vectors(network: ERModel) -> Tensor:
    """[entities, size] float32: what the model keeps of an entity, its first representation where it has several.

    Those of SimplE and CP are the entity as a head; in TransD and BoxE the others are its projection and its bump.
    """
    return _plain(network.entity_representations[0]())


def relation_vectors(network: ERModel, num_relations: int) -> Tensor:
    """[relations, size] float32 as `entity_vectors`, without those of inverse relations; size 0 where a model has none.

    pykeen keeps the inverse of relation r next to it, in the rows 2r and 2r + 1.
    """
    kept: Sequence[Any] = network.relation_representations
    if not len(kept):
        return torch.zeros(num_relations, 0)
    found = _plain(kept[0]())
    return found[::2].contiguous() if len(found) == 2 * num_relations else found


def further_vectors(network: ERModel, model: str, num_relations: int) -> dict[str, Tensor]:
    """The additional vectors of a model whose vectors alone score triples (`kg.vectors.scores`)."""
    kept = {"entity": network.entity_representations, "relation": network.relation_representations}
    found = {}
    for name in MORE_OF.get(plain_name(model), ()):
        kind, _, place = name.partition(".")
        vectors = _plain(kept[kind][int(place)]())
        inverse = kind == "relation" and len(vectors) == 2 * num_relations
        found[name] = vectors[::2].contiguous() if inverse else vectors
    return found


class PykeenScores:
    """Scores of all entities from a pykeen model, for `kg.vectors.triple_ranks`.

    A model that was trained on inverse triples answers (?, r, t) as (t, inverse of r, ?).
    """

    def __init__(self, network: ERModel) -> None:
        self.network = network

    @torch.inference_mode()
    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]: how well each one holds."""
        return self.network.predict_hrt(triples).squeeze(1).cpu()

    @torch.inference_mode()
    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (h, r, ?)."""
        return self.network.predict_t(torch.stack([heads, relations], dim=1)).cpu()

    @torch.inference_mode()
    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (?, r, t)."""
        return self.network.predict_h(torch.stack([relations, tails], dim=1)).cpu()


def _plain(representation: Tensor) -> Tensor:
    """[rows, size] float32, detached, on the CPU; of complex numbers all real parts and then all imaginary ones."""
    found = representation.detach()
    parts = [found.real, found.imag] if found.is_complex() else [found]
    return torch.cat([part.flatten(1) for part in parts], dim=1).float().cpu().contiguous()

"""Training vectors of the entities and relations of a graph, with pykeen."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from kg.graph.store import GraphStore
from kg.vectors.fitting import Fitted, Ranked, fit
from kg.vectors.link_prediction import LinkPrediction, link_prediction, rows_of
from kg.vectors.networks import PykeenScores, entity_vectors, further_vectors, make_network, relation_vectors
from kg.vectors.options import VectorOptions
from kg.vectors.resuming import StateFile
from kg.vectors.vectors import Vectors, check_ending, save_vectors
from workbench.errors import WorkbenchError

log = logging.getLogger(__name__)

Triple = tuple[str, str, str]


def train_vectors(
    store: GraphStore,
    output: str | Path,
    options: VectorOptions | None = None,
    *,
    device: str = "cpu",
    held_out: Iterable[Triple] = (),
    valid: Iterable[Triple] = (),
    known: Iterable[Triple] = (),
    seeds: int = 1,
    progress: bool = False,
) -> Vectors:
    """Train vectors of a graph and write them to the file `output`; the same arguments give the same vectors on a CPU.

    Until all is done, each training keeps its state in a file beside it, and goes on from there when it was killed.

    Negative samples replace the head or the tail of a triple at random (Bordes et al., "Translating Embeddings for
    Modeling Multi-relational Data", NeurIPS 2013); the default loss is self-adversarial (Sun et al., arXiv 1902.10197).

    Args:
        options: the model and its training; None for the defaults.
        held_out: triples to rank when the vectors are written; the numbers go into the provenance.
        valid: triples whose ranks end the training (`kg.vectors.fitting.fit`).
        known: other true triples. All that are given filter all ranks, and so do the graph's own.
        seeds: so many trainings are ranked, with seeds that follow each other; the first one's vectors are written.

    Raises:
        WorkbenchError: unknown model or loss, a graph without triples, `output` is no `.safetensors` file, several
            seeds and nothing to rank, or no triple of `held_out` or `valid` is one of the graph's entities.
    """
    output = check_ending(output)
    if not store.num_triples:
        raise WorkbenchError(f"the graph {store.path} has no triples to train vectors on")
    options = options or VectorOptions()
    parts = _parts(store, held_out, valid, known)
    if seeds > 1 and parts.tested is None:
        raise WorkbenchError(f"{seeds} seeds are trained to compare their ranks: give triples to rank (--held-out)")
    runs = [_Run(store, replace(options, seed=options.seed + n), device, parts.valid, output) for n in range(seeds)]
    with torch.random.fork_rng(devices=[]):
        vectors, scores = runs[0].trained(progress)
        save_vectors(vectors, output)  # ranking takes long: whoever stops it has the vectors
        if parts.tested is None:
            runs[0].kept.remove()
            return vectors
        ranked = {options.seed: rank(scores, parts.tested, store)}
        for run in runs[1:]:
            _, scores = run.trained(progress)
            ranked[run.options.seed] = rank(scores, parts.tested, store)
            log.info("seed %d: MRR %.4f", run.options.seed, ranked[run.options.seed].both.mrr)
    vectors.provenance["link_prediction"] = ranked[options.seed].as_dict()
    if seeds > 1:
        vectors.provenance["seeds"] = {str(seed): found.as_dict() for seed, found in ranked.items()}
    save_vectors(vectors, output)
    for run in runs:
        run.kept.remove()
    return vectors


def rank(scores: PykeenScores, tested: Ranked, store: GraphStore) -> LinkPrediction:
    """The filtered ranks of triples of the graph's entities."""
    return link_prediction(scores, tested.triples, tested.known, store.num_relations)


class _Parts(NamedTuple):
    """What is ranked in the end and what on the way; None where there is nothing."""

    tested: Ranked | None
    valid: Ranked | None


def _parts(store: GraphStore, held_out: Iterable[Triple], valid: Iterable[Triple], known: Iterable[Triple]) -> _Parts:
    tested, watched = _rows(store, held_out, "--held-out"), _rows(store, valid, "--valid")
    truth = np.concatenate([store.triple_rows, rows_of(store, known)[0], tested, watched])
    return _Parts(*(Ranked(rows, truth) if len(rows) else None for rows in (tested, watched)))


def _rows(store: GraphStore, triples: Iterable[Triple], where: str) -> np.ndarray:
    rows, left_out = rows_of(store, triples)
    if left_out and not len(rows):
        raise WorkbenchError(
            f"{where}: each of the {left_out} triples names an entity or relation that the graph {store.path} does not "
            f"hold; its ids look like {', '.join(map(repr, store.ids[:3]))}"
        )
    if left_out:
        log.warning("%s: %d triples name an entity or relation that the graph does not hold: left out", where, left_out)
    return rows


class _Run:
    """One training, with the seed of its options; `kept` is its state."""

    def __init__(
        self, store: GraphStore, options: VectorOptions, device: str, valid: Ranked | None, output: Path
    ) -> None:
        self.store, self.options, self.device, self.valid = store, options, device, valid
        about = {
            **dataclasses.asdict(options),
            "graph": store.identity,
            "control": store.control,
            "control_seed": store.seed,
            "valid": valid and sha256(np.concatenate([*valid]).tobytes()).hexdigest(),
            "pykeen": version("pykeen"),
            "torch": str(torch.__version__),
        }
        self.kept = StateFile(output.with_name(f"{output.name}.seed-{options.seed}.training"), about)

    def trained(self, progress: bool) -> tuple[Vectors, PykeenScores]:
        store, network = self.store, make_network(self.store, self.options).to(self.device)
        fitted = fit(network, store, self.options, self.valid, self.kept, progress)
        ids, relation_ids = list(store.ids), list(store.relation_ids)
        entity, relation = entity_vectors(network), relation_vectors(network, store.num_relations)
        more = further_vectors(network, self.options.model, store.num_relations)
        about = _provenance(store, self.options, fitted)
        vectors = Vectors(ids, entity, relation_ids, relation, about, more=more)
        return vectors, PykeenScores(network)


def _provenance(store: GraphStore, options: VectorOptions, fitted: Fitted) -> dict[str, Any]:
    return {
        **dataclasses.asdict(options),
        "graph": {"path": str(store.path), **_false_facts(store), **store.meta},
        "pykeen": version("pykeen"),
        "torch": str(torch.__version__),
        "final_loss": fitted.final_loss,
        **({"best": fitted.best._asdict()} if fitted.best else {}),
    }


def _false_facts(store: GraphStore) -> dict[str, Any]:
    """What a graph of false facts is recorded with; nothing of a true one."""
    if store.control is None or store.left is None:
        return {}
    left = {"guessed": store.left.overall.right, "majority": store.left.overall.majority}
    return {"control": store.control, "seed": store.seed, "true_share": store.true_share, "true_tails": left}

"""Training vectors of a graph with pykeen: for a number of epochs, or until held-out triples rank no better.

Negatives are drawn among the entities that training triples name (`StatedSampler`). A graph may have entities with
texts alone, those that an inductive split holds out. As negatives they would get low scores everywhere
(`kg.graph.negatives`).
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from pykeen.sampling import BasicNegativeSampler
from torch import Tensor

from kg.graph.store import GraphStore
from kg.vectors.networks import (
    PykeenScores,
    entity_vectors,
    further_vectors,
    make_network,
    relation_vectors,
    triples_of,
)
from kg.vectors.options import VectorOptions
from kg.vectors.training_state import TrainingStateFile
from kg.vectors.triple_ranks import LinkPredictionRanks, link_prediction, rows_of
from kg.vectors.vectors import GraphVectors, check_ending, save_vectors
from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import with_urls

if TYPE_CHECKING:
    from pykeen.models import ERModel
    from pykeen.training import SLCWATrainingLoop

logger = logging.getLogger(__name__)


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
) -> GraphVectors:
    """Train vectors of a graph and write them to the file `output`; the same arguments give the same vectors on a CPU.

    Until all is done, each training keeps its state in a file next to it, and continues from there when it was killed.

    Negative samples replace the head or the tail of a triple at random (Bordes et al., "Translating Embeddings for
    Modeling Multi-relational Data", NeurIPS 2013); the default loss is self-adversarial (Sun et al., arXiv 1902.10197).

    Args:
        options: the model and its training; None for the defaults.
        held_out: triples to rank when the vectors are written; the numbers go into the provenance.
        valid: triples whose ranks end the training (`kg.vectors.training.fit_model`).
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
            logger.info("seed %d: MRR %.4f", run.options.seed, ranked[run.options.seed].both.mrr)
    vectors.provenance["link_prediction"] = ranked[options.seed].as_dict()
    if seeds > 1:
        vectors.provenance["seeds"] = {str(seed): found.as_dict() for seed, found in ranked.items()}
    save_vectors(vectors, output)
    for run in runs:
        run.kept.remove()
    return vectors


def rank(scores: PykeenScores, tested: EpochRanks, store: GraphStore) -> LinkPredictionRanks:
    """The filtered ranks of triples of the graph's entities."""
    return link_prediction(scores, tested.triples, tested.known, store.num_relations)


class _Parts(NamedTuple):
    """The triples that are ranked after the training and during it; None if there are none."""

    tested: EpochRanks | None
    valid: EpochRanks | None


def _parts(store: GraphStore, held_out: Iterable[Triple], valid: Iterable[Triple], known: Iterable[Triple]) -> _Parts:
    tested, watched = _rows(store, held_out, "--held-out"), _rows(store, valid, "--valid")
    truth = np.concatenate([store.triple_rows, rows_of(store, known)[0], tested, watched])
    return _Parts(*(EpochRanks(rows, truth) if len(rows) else None for rows in (tested, watched)))


def _rows(store: GraphStore, triples: Iterable[Triple], where: str) -> np.ndarray:
    rows, left_out = rows_of(store, triples)
    if left_out and not len(rows):
        raise WorkbenchError(
            f"{where}: each of the {left_out} triples names an entity or relation that the graph {store.path} does not "
            f"hold; its ids look like {', '.join(map(repr, store.ids[:3]))}"
        )
    if left_out:
        logger.warning(
            "%s: %d triples name an entity or relation that the graph does not hold: left out", where, left_out
        )
    return rows


class _Run:
    """One training, with the seed of its options; `kept` is its state."""

    def __init__(
        self, store: GraphStore, options: VectorOptions, device: str, valid: EpochRanks | None, output: Path
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
        self.kept = TrainingStateFile(output.with_name(f"{output.name}.seed-{options.seed}.training"), about)

    def trained(self, progress: bool) -> tuple[GraphVectors, PykeenScores]:
        store, network = self.store, make_network(self.store, self.options).to(self.device)
        fitted = fit_model(network, store, self.options, self.valid, self.kept, progress)
        ids, relation_ids = list(store.ids), list(store.relation_ids)
        entity, relation = entity_vectors(network), relation_vectors(network, store.num_relations)
        more = further_vectors(network, self.options.model, store.num_relations)
        about = _provenance(store, self.options, fitted)
        vectors = GraphVectors(ids, entity, relation_ids, relation, about, more=more)
        return vectors, PykeenScores(network)


def _provenance(store: GraphStore, options: VectorOptions, fitted: FittedModel) -> dict[str, Any]:
    return {
        **dataclasses.asdict(options),
        "graph": {"path": with_urls(str(store.path)), **_false_facts(store), **store.meta},
        "pykeen": version("pykeen"),
        "torch": str(torch.__version__),
        "final_loss": fitted.final_loss,
        **({"best": fitted.best._asdict()} if fitted.best else {}),
    }


def _false_facts(store: GraphStore) -> dict[str, Any]:
    """The record of a graph of false facts; empty for a true graph."""
    if store.control is None or store.left is None:
        return {}
    left = {"guessed": store.left.overall.right, "majority": store.left.overall.majority}
    return {"control": store.control, "seed": store.seed, "true_share": store.true_share, "true_tails": left}


class EpochRanks(NamedTuple):
    """Triples to rank, and those that filter: rows of head, relation, tail [triples, 3]."""

    triples: np.ndarray
    known: np.ndarray


class BestEpoch(NamedTuple):
    """The epoch whose weights were kept, and the MRR of `--valid` there."""

    epoch: int
    mrr: float


class FittedModel(NamedTuple):
    """The mean loss of the last epoch, and of a training that was watched its best one."""

    final_loss: float | None
    best: BestEpoch | None


def fit_model(
    network: ERModel,
    store: GraphStore,
    options: VectorOptions,
    valid: EpochRanks | None,
    kept: TrainingStateFile,
    progress: bool = False,
) -> FittedModel:
    """Train the network in place; with `valid` it has the weights of the epoch with the best MRR afterwards.

    The triples of `valid` are ranked every `options.check_every` epochs and after the last, and training ends after
    `options.patience` times without a better MRR. The state is kept every few minutes; where there is one, the training
    continues from it, on a CPU as if it had never ended.
    """
    from pykeen.training import SLCWATrainingLoop

    triples = triples_of(store, options)
    loop = SLCWATrainingLoop(
        model=network,
        triples_factory=triples,
        optimizer=torch.optim.Adam(network.parameters(), lr=options.lr),
        negative_sampler=StatedSampler,
        negative_sampler_kwargs={"num_negs_per_pos": options.negatives},
        automatic_memory_optimization=False,  # it makes a trial run to find a batch size
    )
    watch = _Watch(network, options, valid, store.num_relations) if valid is not None else None
    between = _BetweenEpochs(loop, watch, kept)
    resumed = between.resume()
    if between.ended:
        return between.fitted()
    gc.freeze()  # pykeen collects garbage after every epoch: 0.2 s each over the modules that are loaded anyway
    try:
        with tempfile.TemporaryDirectory() as folder:  # pykeen would make one in the home folder
            loop.train(
                triples,
                num_epochs=options.epochs,
                batch_size=options.batch_size,
                stopper=between,  # type: ignore[arg-type]  # it needs no more than these methods
                continue_training=resumed,
                checkpoint_directory=folder,
                num_workers=0,
                pin_memory=network.device.type == "cuda",
                use_tqdm=progress,
                use_tqdm_batch=False,
                clear_optimizer=False,
            )
    finally:
        gc.unfreeze()
    between.end()
    return between.fitted()


class _BetweenEpochs:
    """pykeen's stopper, as far as its training loop asks for one: looks at `valid`, and keeps the state."""

    best_epoch = None  # pykeen would write its state to disk whenever this changes

    def __init__(self, loop: SLCWATrainingLoop, watch: _Watch | None, kept: TrainingStateFile) -> None:
        self.loop, self.watch, self.kept = loop, watch, kept
        self.ended = False

    def should_evaluate(self, epoch: int) -> bool:
        """After every epoch, counted from 1."""
        return True

    def should_stop(self, epoch: int) -> bool:
        """Whether the training ends here."""
        stop = self.watch is not None and self.watch.should_stop(epoch)
        if self.kept.due and not stop:
            self._keep()
        return stop

    def resume(self) -> bool:
        """Take up the state that was kept, if there is one."""
        state = self.kept.read()
        if state is None:
            return False
        loop = self.loop
        loop.model.load_state_dict(state["weights"])
        loop.optimizer.load_state_dict(state["optimizer"])
        loop._epoch, loop.losses_per_epochs, self.ended = state["epoch"], state["losses"], state["ended"]
        torch.set_rng_state(state["random"])
        if self.watch is not None:
            self.watch.load(state["watch"])
        return True

    def end(self) -> None:
        """The epochs are over: ranking may take long, too."""
        self.ended = True
        self._keep()

    def fitted(self) -> FittedModel:
        """The result of the training."""
        losses = self.loop.losses_per_epochs
        return FittedModel(losses[-1] if losses else None, self.watch.restore() if self.watch else None)

    def _keep(self) -> None:
        loop = self.loop
        state = {
            "epoch": loop._epoch,
            "losses": loop.losses_per_epochs,
            "weights": loop.model.state_dict(),
            "optimizer": loop.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "watch": self.watch.state() if self.watch is not None else None,
            "ended": self.ended,
        }
        self.kept.write(state)


class _Watch:
    """Ranks the triples of `valid`, and remembers the weights of the best time.

    pykeen's own stopper returns the weights of the last epoch if the epochs end before its patience does.
    """

    def __init__(self, network: ERModel, options: VectorOptions, valid: EpochRanks, num_relations: int) -> None:
        self.network = network
        self.options = options
        self.valid = valid
        self.num_relations = num_relations
        self.best = BestEpoch(0, -1.0)
        self.weights: dict[str, Tensor] = {}
        self.waited = 0

    def should_stop(self, epoch: int) -> bool:
        """Rank the triples where it is time, and keep the weights if they rank better than ever before."""
        if epoch % self.options.check_every and epoch != self.options.epochs:
            return False
        found = link_prediction(PykeenScores(self.network), self.valid.triples, self.valid.known, self.num_relations)
        if found.both.mrr > self.best.mrr:
            self.best, self.waited = BestEpoch(epoch, found.both.mrr), 0
            self.weights = {name: weight.clone() for name, weight in self.network.state_dict().items()}
        else:
            self.waited += 1
        logger.info("epoch %d: MRR %.4f of --valid, the best %.4f", epoch, found.both.mrr, self.best.mrr)
        return self.waited >= self.options.patience

    def state(self) -> dict[str, Any]:
        """The state that `load` needs to resume."""
        return {"best": list(self.best), "weights": self.weights, "waited": self.waited}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.best, self.weights, self.waited = BestEpoch(*state["best"]), state["weights"], state["waited"]

    def restore(self) -> BestEpoch | None:
        """Give the network its best weights back; None where no epoch was ranked."""
        if not self.weights:
            return None
        self.network.load_state_dict(self.weights)
        return self.best


ENDS = [0, 2]


class StatedSampler(BasicNegativeSampler):
    """Another head or tail, uniformly among the entities of the triples; where these are all, pykeen's own draws."""

    def __init__(self, *, mapped_triples: Tensor, **kwargs: Any) -> None:
        super().__init__(mapped_triples=mapped_triples, **kwargs)
        self.stated = mapped_triples[:, ENDS].unique()
        self.all = len(self.stated) == self.num_entities
        self.places = torch.zeros(self.num_entities, dtype=torch.long)
        self.places[self.stated] = torch.arange(len(self.stated))
        self.num_entities = len(self.stated)

    def corrupt_batch(self, positive_batch: Tensor) -> Tensor:
        """[..., 3] -> [..., number, 3]: drawn by their places among the entities of the triples."""
        if self.all:
            return super().corrupt_batch(positive_batch)
        places = positive_batch.clone()
        places[..., ENDS] = self.places[positive_batch[..., ENDS]]
        false = super().corrupt_batch(places)
        false[..., ENDS] = self.stated[false[..., ENDS]]
        return false

"""Training a pykeen model on the triples of a graph: so many epochs, or until held-out triples rank no better."""

from __future__ import annotations

import gc
import logging
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.vectors.link_prediction import link_prediction
from kg.vectors.networks import PykeenScores, triples_of
from kg.vectors.options import VectorOptions
from kg.vectors.resuming import StateFile

if TYPE_CHECKING:
    from pykeen.models import ERModel
    from pykeen.training import SLCWATrainingLoop

log = logging.getLogger(__name__)


class Ranked(NamedTuple):
    """Triples to rank, and those that filter: rows of head, relation, tail [triples, 3]."""

    triples: np.ndarray
    known: np.ndarray


class Best(NamedTuple):
    """The epoch whose weights were kept, and the MRR of `--valid` there."""

    epoch: int
    mrr: float


class Fitted(NamedTuple):
    """The mean loss of the last epoch, and of a training that was watched its best one."""

    final_loss: float | None
    best: Best | None


def fit(
    network: ERModel,
    store: GraphStore,
    options: VectorOptions,
    valid: Ranked | None,
    kept: StateFile,
    progress: bool = False,
) -> Fitted:
    """Train the network in place; with `valid` it has the weights of the epoch with the best MRR afterwards.

    The triples of `valid` are ranked every `options.check_every` epochs and after the last, and training ends after
    `options.patience` times without a better MRR. The state is kept every few minutes; where there is one, the training
    goes on from it, on a CPU as if it had never ended.
    """
    from pykeen.training import SLCWATrainingLoop

    from kg.vectors.sampling import StatedSampler

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

    def __init__(self, loop: SLCWATrainingLoop, watch: _Watch | None, kept: StateFile) -> None:
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

    def fitted(self) -> Fitted:
        """What came of it."""
        losses = self.loop.losses_per_epochs
        return Fitted(losses[-1] if losses else None, self.watch.restore() if self.watch else None)

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

    pykeen's own stopper gives the weights of the last epoch back where the epochs end before its patience does.
    """

    def __init__(self, network: ERModel, options: VectorOptions, valid: Ranked, num_relations: int) -> None:
        self.network = network
        self.options = options
        self.valid = valid
        self.num_relations = num_relations
        self.best = Best(0, -1.0)
        self.weights: dict[str, Tensor] = {}
        self.waited = 0

    def should_stop(self, epoch: int) -> bool:
        """Rank the triples where it is time, and keep the weights if they rank better than ever before."""
        if epoch % self.options.check_every and epoch != self.options.epochs:
            return False
        found = link_prediction(PykeenScores(self.network), self.valid.triples, self.valid.known, self.num_relations)
        if found.both.mrr > self.best.mrr:
            self.best, self.waited = Best(epoch, found.both.mrr), 0
            self.weights = {name: weight.clone() for name, weight in self.network.state_dict().items()}
        else:
            self.waited += 1
        log.info("epoch %d: MRR %.4f of --valid, the best %.4f", epoch, found.both.mrr, self.best.mrr)
        return self.waited >= self.options.patience

    def state(self) -> dict[str, Any]:
        """What `load` needs to go on."""
        return {"best": list(self.best), "weights": self.weights, "waited": self.waited}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.best, self.weights, self.waited = Best(*state["best"]), state["weights"], state["waited"]

    def restore(self) -> Best | None:
        """Give the network its best weights back; None where no epoch was ranked."""
        if not self.weights:
            return None
        self.network.load_state_dict(self.weights)
        return self.best

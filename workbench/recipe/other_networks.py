"""Networks that a recipe takes from other runs, and layers in place of another network's."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.core.options.bounds import Place, Share, SomeShare, Word


@dataclass
class StoredNetwork:
    """A network as a run or a checkpoint has it: its architecture, its weights and those of its heads, never trained.
    It teaches others, or stands in for their layers.

    `network` names a network of a run that has several. `heads` maps our objectives that read it to those of the run;
    by default they have the same names.
    """

    run: Place
    network: Word | None = None
    heads: dict[Word, Word] = field(default_factory=dict)


@dataclass
class Succession:
    """Layers that are trained in place of a predecessor's (BERT-of-Theseus, arXiv:2002.02925, sections 3.1 and 3.2).

    With N layers here and M of the network `predecessor`, each stands for M / N of them. In an update it runs with a
    probability that rises from `start` to 1 at the share `until` of the run; otherwise the predecessor's run.
    """

    predecessor: Word
    start: Share = 0.5
    until: SomeShare = 0.5

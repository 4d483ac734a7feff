"""Classification by the word that fills a pattern (PET): a masked language model with few labelled texts.

The text stands in a pattern with a place for one word, and each class has a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from workbench.core.errors import WorkbenchError, quoted, unknown
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.finetuning.labels import check_varied, chosen_label, label_counts
from workbench.evaluation.options import Predicting
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.task_options import ClozePredicting, ClozeScoring, ClozeTuning, LabelTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.objectives.cloze import Cloze
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import DEFAULT_NETWORK, objective_name
from workbench.recipe.spec import Recipe


class ClozeClassification(Classification):
    """One class for a text or a pair, by the word of the class that fits a pattern best."""

    tuning: type[LabelTuning] = ClozeTuning
    scoring = ClozeScoring
    predicting: type[Predicting] | None = ClozePredicting
    objective: type[Objective] = Cloze
    panels = ("workbench.evaluation.task_panels:filled",)

    def setup(self, tuning: LabelTuning, base: Recipe) -> Setup:
        """
        Raises:
            WorkbenchError: the network predicts no masked tokens, or the words are not one for each class.
        """
        assert isinstance(tuning, ClozeTuning)
        corpus = Corpus.open(tuning.corpus)
        label, counts = chosen_label(corpus, tuning.label)
        check_varied(corpus, label, counts)
        held_out = label_counts(Corpus.open(tuning.held_out)) if tuning.held_out else {}
        words = _check_words(tuning.word, {*counts, *held_out.get(label, ())}, label)
        learned = _masked_model(base, _tuned(base, tuning))
        options: dict[str, Any] = {key: learned[key] for key in ("stream", "head") if key in learned}
        objective: dict[str, Any] = {"objective": "cloze", "words": words, "label": label, **options}
        sequence = text_sequence(base, "cloze", tuning.max_length, pattern=tuning.pattern)
        return Setup(sequence, objective, heads={"cloze": objective_name(learned)})


def _tuned(base: Recipe, tuning: LabelTuning) -> str:
    """The network that is fine-tuned, as `workbench.evaluation.finetuning.finetuning` chooses it, or the one that it
    follows."""
    names = list(base.networks)
    name = tuning.network or (names[0] if len(names) == 1 else DEFAULT_NETWORK)
    return base.followers[name].follows if name in base.followers else name


def _masked_model(base: Recipe, network: str) -> dict[str, Any]:
    """The objective of the network whose head predicts the words: `cloze` before `mlm`.

    Raises:
        WorkbenchError: it has none.
    """
    every = [spec for task in base.tasks.values() for spec in task.objectives]
    own = [spec for spec in every if spec.get("network", DEFAULT_NETWORK) == network]
    for kind in ("cloze", "mlm"):
        for spec in own:
            if spec["objective"] == kind:
                return spec
    others = [spec["network"] for spec in every if spec not in own and spec["objective"] in ("cloze", "mlm")]
    named = ", ".join(dict.fromkeys(str(spec["objective"]) for spec in own)) or "none"
    advice = f"--network {quoted(others[0])}" if others else "take a run that was pretrained with mlm"
    raise WorkbenchError(
        f"the network {network!r} of {base.name!r} predicts no masked tokens (its objectives: {named}), and a cloze "
        f"needs a head that does; {advice}"
    )


def _check_words(stated: Sequence[str], classes: set[str], label: str) -> dict[str, str]:
    """The word of each class.

    Raises:
        WorkbenchError: a class has no word, or two, or is in neither corpus.
    """
    pairs = [assignment.partition("=") for assignment in stated]
    counts = Counter(name for name, _, _ in pairs)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise WorkbenchError(f"--word: the class {twice[0]!r} has several words; allowed: one for each class")
    if missing := sorted(classes - counts.keys()):
        raise WorkbenchError(
            f"--word: {len(missing)} of the {len(classes)} classes of the label {label!r} have none; add "
            f"{' '.join(f'--word {quoted(name)}=WORD' for name in missing)}"
        )
    if absent := sorted(counts.keys() - classes):
        raise unknown("class", absent[0], classes, f"the label {label!r}", advice="Leave out its --word")
    return {name: word for name, _, word in pairs}

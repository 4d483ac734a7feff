"""Classification by the word that fills a pattern (PET): a masked language model with few labelled texts.

The text stands in a pattern with a place for one word, and each class has a word.
"""

from __future__ import annotations

from typing import Any

from workbench.core.errors import WorkbenchError, quoted
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.finetuning.labels import check_varied, chosen_label, label_counts
from workbench.evaluation.options import Predicting
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.task_options import ClozePredicting, ClozeScoring, ClozeTuning, LabelTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.objectives.cloze import Cloze
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import objective_name
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
            WorkbenchError: the run predicts no masked tokens, or a class of the corpus has no word.
        """
        assert isinstance(tuning, ClozeTuning)
        stated = [assignment.partition("=") for assignment in tuning.word]
        words = {name: word for name, _, word in stated}
        corpus = Corpus.open(tuning.corpus)
        label, counts = chosen_label(corpus, tuning.label)
        check_varied(corpus, label, counts)
        held_out = label_counts(Corpus.open(tuning.held_out)) if tuning.held_out else {}
        _check_words(words, {*counts, *held_out.get(label, ())}, label)
        learned = _masked_model(base)
        options: dict[str, Any] = {key: learned[key] for key in ("stream", "head") if key in learned}
        objective: dict[str, Any] = {"objective": "cloze", "words": words, "label": label, **options}
        sequence = text_sequence(base, "cloze", tuning.max_length, pattern=tuning.pattern)
        return Setup(sequence, objective, heads={"cloze": objective_name(learned)})


def _masked_model(base: Recipe) -> dict[str, Any]:
    """The run's objective whose head predicts the words: `cloze` before `mlm`.

    Raises:
        WorkbenchError: it has none.
    """
    own = [spec for task in base.tasks.values() for spec in task.objectives]
    for kind in ("cloze", "mlm"):
        for spec in own:
            if spec["objective"] == kind:
                return spec
    named = ", ".join(dict.fromkeys(str(spec["objective"]) for spec in own)) or "none"
    raise WorkbenchError(
        f"{base.name!r} predicts no masked tokens (its objectives: {named}), and a cloze needs a head that does; take "
        "a run that was pretrained with mlm"
    )


def _check_words(words: dict[str, str], classes: set[str], label: str) -> None:
    """
    Raises:
        WorkbenchError: a class has no word.
    """
    if missing := sorted(classes - words.keys()):
        raise WorkbenchError(
            f"--word: {len(missing)} of the {len(classes)} classes of the label {label!r} have none; add "
            f"{' '.join(f'--word {quoted(name)}=WORD' for name in missing)}"
        )

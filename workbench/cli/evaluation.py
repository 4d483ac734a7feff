"""`workbench finetune TASK` and `workbench evaluate TASK`: where the tasks are, by import path."""

from __future__ import annotations

from workbench.cli.app import Commands, Entry

finetune = Commands(
    {
        "vqa": Entry("vision.evaluation.vqa:finetune", "Visual question answering: an answer vocabulary, soft labels."),
        "retrieval": Entry("vision.evaluation.retrieval:finetune", "Image-text retrieval."),
        "entity-typing": Entry("kg.evaluation.typing:finetune", "The types of a marked mention, multi-label."),
    },
    help="Fine-tune a pretrained run on a task.",
)
evaluate = Commands(
    {
        "vqa": Entry("vision.evaluation.vqa:evaluate", "VQA accuracy by the official rules."),
        "retrieval": Entry("vision.evaluation.retrieval:evaluate", "Recall at 1, 5, 10 and median rank, both ways."),
        "entity-typing": Entry("kg.evaluation.typing:evaluate", "Strict, loose macro and loose micro scores."),
        "facts": Entry("kg.evaluation.facts_task:evaluate", "Rank the object of a fact in a sentence with a slot."),
    },
    help="Evaluate a run; writes a JSON file into the run's evaluations/.",
)

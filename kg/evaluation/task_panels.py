"""Panels of a report for the downstream tasks on knowledge, one function per task. Each shows a few examples: the text
or the triple, the prediction, and the right answer if the prediction is wrong.
"""

from __future__ import annotations

from workbench.report.examples import example_panel, marked, marked_all, verdict
from workbench.report.html import escape, number
from workbench.report.run import Record, Run


def linked(run: Run) -> str | None:
    """Texts. An example has text, mentions (those whose entity is known) and right, how many of them."""
    return example_panel(run, "disambiguation", "Mentions and their entities", _mentions)


def _mentions(run: Run, example: Record) -> str:
    right, mentions = int(example["right"]), int(example["mentions"])
    return f"<p>{escape(example['text'])}</p><p>{verdict(f'{right} of {mentions} right', right == mentions)}</p>"


def types(run: Run) -> str | None:
    """Mentions with their types. An example has text, mention [start, end), types, predicted."""
    return example_panel(run, "entity-typing", "Entities and their types", _typed)


def _typed(run: Run, example: Record) -> str:
    gold, found = list(example["types"]), list(example["predicted"])
    parts = [verdict(name, name in gold) for name in found]
    parts += [f'<span class="quiet">missing {escape(name)}</span>' for name in gold if name not in found]
    return f"<p>{marked(example['text'], example.get('mention'))}</p><p>{' '.join(parts) or 'no type'}</p>"


def filled(run: Run) -> str | None:
    """Cloze sentences. An example has text, mask [start, end), object, prediction, rank (of the object)."""
    return example_panel(run, "facts", "Facts filled in", _fact)


def _fact(run: Run, example: Record) -> str:
    rank = int(example["rank"])
    place = "" if rank == 1 else f' <span class="quiet">{escape(example["object"])} is at place {rank:,}</span>'
    answer = verdict(example["prediction"], rank == 1)
    return f"<p>{marked(example['text'], example.get('mask'))}</p><p>{answer}{place}</p>"


def predicted(run: Run) -> str | None:
    """Triples. An example has head, relation, tail, head_rank, tail_rank."""
    return example_panel(run, "link-prediction", "Triples and the places of their ends", _ranked_triple)


def _ranked_triple(run: Run, example: Record) -> str:
    head, relation, tail = (escape(example[part]) for part in ("head", "relation", "tail"))
    ranks = f"head at place {number(example['head_rank'])}, tail at {number(example['tail_rank'])}"
    return f'<p>{head} &rarr; {relation} &rarr; {tail}</p><p class="quiet">{ranks}</p>'


def ranked(run: Run) -> str | None:
    """Triples. An example has head, relation, tail, prediction (a relation), rank."""
    return example_panel(run, "relation-prediction", "Pairs of entities and their relation", _ranked_relation)


def _ranked_relation(run: Run, example: Record) -> str:
    head, relation, tail = (escape(example[part]) for part in ("head", "relation", "tail"))
    said = verdict(example["prediction"], example["prediction"] == example["relation"])
    rank = f"the right relation is at place {number(example['rank'])}"
    return f'<p>{head} &rarr; {relation} &rarr; {tail}</p><p>{said}</p><p class="quiet">{rank}</p>'


def related(run: Run) -> str | None:
    """Sentences with their relation. An example has text, marks [[start, end, name], ...], prediction, label."""
    return example_panel(run, "relations", "Two mentions and their relation", _sentence)


def _sentence(run: Run, example: Record) -> str:
    right = example["prediction"] == example["label"]
    gold = "" if right else f' <span class="quiet">{escape(example["label"])}</span>'
    text = marked_all(example["text"], example["marks"])
    return f"<p>{text}</p><p>{verdict(example['prediction'], right)}{gold}</p>"


def meant(run: Run) -> str | None:
    """Texts with supersenses. An example has text, predicted [name], allowed [[name, ...]] of its hidden words."""
    return example_panel(run, "supersenses", "Supersenses of hidden words", _senses)


def _senses(run: Run, example: Record) -> str:
    verdicts = []
    for name, allowed in zip(example["predicted"], example["allowed"], strict=True):
        gold = "" if name in allowed else f' <span class="quiet">{escape(", ".join(allowed))}</span>'
        verdicts.append(verdict(name, name in allowed) + gold)
    return f"<p>{escape(example['text'])}</p><p>{' '.join(verdicts)}</p>"


def decided(run: Run) -> str | None:
    """Triples. An example has head, relation, tail, prediction, label (both whether it is true)."""
    return example_panel(run, "triple-classification", "True and false triples", _judged_triple)


def _judged_triple(run: Run, example: Record) -> str:
    head, relation, tail = (escape(example[part]) for part in ("head", "relation", "tail"))
    said = verdict("true" if example["prediction"] else "false", example["prediction"] == example["label"])
    return f"<p>{head} &rarr; {relation} &rarr; {tail}</p><p>{said}</p>"

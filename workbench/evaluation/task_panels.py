"""Panels of a report for the downstream tasks on texts, one function per task. Each shows a few examples: the text, the
prediction, and the right answer if the prediction is wrong.
"""

from __future__ import annotations

from workbench.metrics.answers import words_of
from workbench.report.examples import example_panel, marked, marked_all, verdict
from workbench.report.html import escape, number, surprise_tokens
from workbench.report.run import Record, Run


def chosen(run: Run) -> str | None:
    """Texts with their choices. An example has text, question ("" for none), choices, prediction and answer."""
    return example_panel(run, "choose", "Texts and what was chosen", _chosen)


def _chosen(run: Run, example: Record) -> str:
    prediction, answer = example["prediction"], example["answer"]
    words = "".join(f"<p>{escape(part)}</p>" for part in (example["text"], example["question"]) if part)
    found = [verdict(example["choices"][prediction], prediction == answer)]
    found += [
        f'<span class="quiet">{"right: " if number == answer else ""}{escape(choice)}</span>'
        for number, choice in enumerate(example["choices"])
        if number != prediction
    ]
    return f"{words}<p>{' '.join(found)}</p>"


def classified(run: Run) -> str | None:
    """Texts with their class. An example has text, second (empty where there is none), prediction, label."""
    return example_panel(run, "classify", "Texts and their classes", _classified)


def filled(run: Run) -> str | None:
    """Texts with the class whose word fills their pattern. Examples are as those of `classify`."""
    return example_panel(run, "cloze", "Texts and the classes of the words that fill their pattern", _classified)


def _classified(run: Run, example: Record) -> str:
    right = example["prediction"] == example["label"]
    gold = "" if right else f' <span class="quiet">{escape(example["label"])}</span>'
    words = "".join(f"<p>{escape(part)}</p>" for part in (example["text"], example.get("second")) if part)
    return f"{words}<p>{verdict(example['prediction'], right)}{gold}</p>"


def answered(run: Run) -> str | None:
    """Questions with their answers. An example has text, question, prediction ("" for none), answers."""
    return example_panel(run, "extract", "Questions and their answers in the text", _question)


def _question(run: Run, example: Record) -> str:
    text, prediction, answers = example["text"], example["prediction"], example["answers"]
    right = words_of(prediction) in [words_of(answer) for answer in answers or [""]]
    at = text.find(prediction) if prediction else -1
    gold = "" if right else f' <span class="quiet">{escape(", ".join(answers) or "no answer")}</span>'
    asked = f"<p>{escape(example['question'])} {verdict(prediction or 'no answer', right)}{gold}</p>"
    return f"{asked}<p>{marked(text, (at, at + len(prediction)) if at >= 0 else None)}</p>"


def written(run: Run) -> str | None:
    """Texts and what was built from them. An example has text, prediction, reference."""
    return example_panel(run, "generate", "Texts and what was written of them", _written)


def _written(run: Run, example: Record) -> str:
    prediction, reference = example["prediction"], example["reference"]
    right = prediction == reference
    gold = "" if right else f'<p class="quiet">{escape(reference)}</p>'
    return f"<p>{escape(example['text'])}</p><p>{verdict(prediction or 'nothing', right)}</p>{gold}"


def token_costs(run: Run) -> str | None:
    """Texts with the bits of each token."""
    return example_panel(run, "perplexity", "What the next tokens cost", surprise_tokens)


def hidden_token_costs(run: Run) -> str | None:
    """Texts with the bits of each token, masked alone."""
    return example_panel(run, "pseudo-perplexity", "What masked tokens cost", surprise_tokens)


def estimated(run: Run) -> str | None:
    """Texts with their number. An example has text, second (empty where there is none), prediction, number."""
    return example_panel(run, "regress", "Texts and their numbers", _scored)


def _scored(run: Run, example: Record) -> str:
    words = "".join(f"<p>{escape(part)}</p>" for part in (example["text"], example.get("second")) if part)
    gold = f'<span class="quiet">{number(example["number"])}</span>'
    return f"{words}<p>{number(example['prediction'])} {gold}</p>"


def tagged(run: Run) -> str | None:
    """Texts with their chunks. An example has text, predicted and gold [[start, end, name], ...]."""
    return example_panel(run, "tag", "Tagged texts", _tagged)


def _tagged(run: Run, example: Record) -> str:
    text = example["text"]
    found = [verdict(_tags_in_words(text, each), each in example["gold"]) for each in example["predicted"]]
    missed = [each for each in example["gold"] if each not in example["predicted"]]
    found += [f'<span class="quiet">missing {escape(_tags_in_words(text, each))}</span>' for each in missed]
    return f"<p>{marked_all(text, example['predicted'])}</p><p>{' '.join(found) or 'no chunk'}</p>"


def _tags_in_words(text: str, chunk: list) -> str:
    start, end, name = chunk
    return f"{text[start:end]}: {name}"


def documents_found(run: Run) -> str | None:
    """Queries with their first documents. An example has text, documents [[text, grade], ...]."""
    return example_panel(run, "search", "The queries with the lowest nDCG", _searched)


def _searched(run: Run, example: Record) -> str:
    shown = [f"<p>{verdict(text, grade > 0)}</p>" for text, grade in example["documents"]]
    return f"<p>{escape(example['text'])}</p>{''.join(shown)}"


def near_words(run: Run) -> str | None:
    """Words with the words whose vectors are nearest. An example has text, nearest."""
    return example_panel(run, "vectors", "Words and their nearest words", _near)


def _near(run: Run, example: Record) -> str:
    return f'<p>{escape(example["text"])}: <span class="quiet">{escape(", ".join(example["nearest"]))}</span></p>'

"""The base forms of inflected English words, by the rules of WordNet (Morphy; morphy(7WN)).

Irregular forms (mice, went) follow no rule and have none here.
"""

from __future__ import annotations

ENDINGS = {
    "noun": (
        *(("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh")),
        *(("men", "man"), ("ies", "y")),
    ),
    "verb": (*(("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
}
"""By part of speech: an ending, and the ending of the base form."""


def base_forms(word: str, part_of_speech: str) -> list[str]:
    """The word itself, then what the rules make of it; most of them are no words.

    Args:
        part_of_speech: noun, verb or adj; of any other kind words have one form.
    """
    made = [
        word[: len(word) - len(ending)] + base
        for ending, base in ENDINGS.get(part_of_speech, ())
        if word.endswith(ending) and len(word) > len(ending)
    ]
    return list(dict.fromkeys([word, *made]))

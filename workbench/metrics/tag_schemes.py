"""Schemes of tags of words, which spell the chunks of a text.

| scheme | a chunk of one word, of two, of four |
|---|---|
| BIO (IOB1, IOB2) | `B`; `B I`; `B I I I` |
| IOBES (BIOES; IOE1, IOE2 as well) | `S`; `B E`; `B I I E` |
| BILOU | `U`; `B L`; `B I I L` |
| BMES | `S`; `B E`; `B M M E` |

The chunk's name follows (`B-LOC`, `B_LOC`, `b-loc`), or nothing where all chunks are of one kind (`B`). `O` is a word
outside. In IOB1 a chunk begins with `B` only behind another one of its name; both are read alike, as `I` behind `O` or
behind another name begins a chunk. Tags without a scheme are names of whole spans: parts of speech, `person`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

from workbench.core.errors import WorkbenchError

SchemeName = Literal["BIO", "IOBES", "BILOU", "BMES", "spans"]
OUTSIDE, ONLY = "O", "chunk"
"""The tag of a word outside, and the name of chunks where tags name none."""
SPANS: SchemeName = "spans"
"""The scheme of tags that name whole spans."""
LETTERS: dict[SchemeName, dict[str, str]] = {
    "BIO": {"B": "B", "I": "I"},
    "IOBES": {"B": "B", "I": "I", "E": "E", "S": "S"},
    "BILOU": {"B": "B", "I": "I", "L": "E", "U": "S"},
    "BMES": {"B": "B", "M": "I", "E": "E", "S": "S"},
    SPANS: {},
}
"""The letters of each scheme, and what they mean in IOBES."""
_TAG = re.compile(r"([BIESLUM])(?:([-_])(.+))?", re.IGNORECASE)
_BEHIND = re.compile(r"(.+)[-_]([BIESLUM])", re.IGNORECASE)
_Form = tuple[str | None, bool]  # the sign between letter and name, and whether the letter is upper case


def in_iobes(tag: str, scheme: SchemeName) -> str | None:
    """A word's tag as IOBES spells it, `S-LOC` for BILOU's `u_LOC`; None where it names a whole span."""
    if tag == OUTSIDE or (scheme != SPANS and tag == OUTSIDE.lower()):
        return OUTSIDE
    found = _TAG.fullmatch(tag)
    letter = LETTERS[scheme].get(found[1].upper()) if found else None
    return f"{letter}-{found[3] or ONLY}" if found and letter else None


def has_ends(tags: Iterable[str]) -> bool | None:
    """Whether tags of IOBES mark ends of chunks (`E`, `S`); None where no word is in a chunk."""
    letters = {tag[0] for tag in tags if tag != OUTSIDE}
    return bool(letters & {"E", "S"}) if letters else None


def scheme_of(tags: Iterable[str], where: str) -> SchemeName:
    """The scheme of a set of tags as a whole.

    Tags look like those of words where some are spelt `B-x`, `I-x`, `E-x` or `S-x`; or where `B` and another letter
    stand before one name, or stand alone. Then all of them must be of one form and of one scheme.

    Raises:
        WorkbenchError: they are not; names the odd ones.
    """
    names = sorted({tag for tag in tags if tag.upper() != OUTSIDE})
    forms: dict[_Form, dict[str, str]] = {}
    for name in names:
        if spelt := _TAG.fullmatch(name):
            forms.setdefault((spelt[2], spelt[1].isupper()), {})[name] = spelt[1].upper()
    likely = [(form, found) for form, found in forms.items() if _looks(form, found, len(names))]
    if not likely:
        _refuse_behind(names, where)
        return SPANS
    _, found = max(likely, key=lambda each: len(each[1]))
    fitting = {s: [n for n, letter in found.items() if letter in LETTERS[s]] for s in get_args(SchemeName)}
    best: SchemeName = max(fitting, key=lambda scheme: len(fitting[scheme]))  # the first of equal ones is the smallest
    if len(fitting[best]) < len(names):
        odd = [name for name in names if name not in fitting[best]]
        raise WorkbenchError(
            f"{where}: the tags are of no scheme. {_listed(fitting[best])} would be {best}; {_listed(odd)} would not. "
            f"Write all tags in one scheme ({', '.join(get_args(SchemeName))}). Or name it: with --scheme {best} the "
            f"others name whole spans, with --scheme {SPANS} all do"
        )
    return best


def _looks(form: _Form, found: dict[str, str], count: int) -> bool:
    """Whether tags of a form look like those of words, among `count` names."""
    sign, upper = form
    if sign is None:
        letters = {*found.values()}
        return len(found) == count and (letters == {"I"} or ("B" in letters and len(letters) > 1))
    if sign == "-" and upper and {*found.values()} & {"B", "I", "E", "S"}:
        return True
    pairs = {(letter, name[2:]) for name, letter in found.items()}
    return any(letter == "B" and any(other != "B" and of == name for other, of in pairs) for letter, name in pairs)


def _refuse_behind(names: list[str], where: str) -> None:
    """Raises WorkbenchError where the letters stand behind the names: `LOC-B`, `LOC-I`."""
    pairs = {(found[1], found[2].upper()) for name in names if (found := _BEHIND.fullmatch(name))}
    behind = sorted(name for name, letter in pairs if letter == "B" and len([of for of, _ in pairs if of == name]) > 1)
    if behind:
        raise WorkbenchError(
            f"{where}: the letter stands behind the name in {behind[0]}-B. Write it in front: B-{behind[0]}. Where it "
            f"belongs to the name of a whole span, pass --scheme {SPANS}"
        )


def _listed(names: list[str], shown: int = 6) -> str:
    return f"{', '.join(names[:shown])}{f' and {len(names) - shown} more' if len(names) > shown else ''}"

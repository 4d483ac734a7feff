"""What the task linking is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.evaluation.options import Measuring
from workbench.options.bounds import Share


@dataclass(frozen=True, kw_only=True)
class LinkingScoring(Measuring):
    """Compare a linker with the links of a corpus (`spans`): of given mentions, and with finding the mentions.

    Of given mentions the linker says the entity, or none (NIL); an entity that the linker does not know is NIL, and so
    is a `mention` without a link. With finding them, a link is right where both ends and the entity are. Beside the
    linker stands what each name means most often, whatever the text, and the first candidate of a corpus that has them.
    Of candidates (`prepare link --candidates N --supervise`) the one that is marked is right; mentions without such a
    one are left out, and counted. Texts that were linked with `prepare link --signs` are read without spaces, as they
    were then; --signs says it of texts whose links are other people's.

    Examples:

      workbench evaluate linking corpora/wiki-linked --linker linkers/codex-m --min-score 0.3

      workbench evaluate linking corpora/kore50 --linker linkers/titles
    """

    run: Annotated[Path, typer.Option("--linker", help="A linker made by `prepare linker`.", show_default=False)]
    min_score: Annotated[Share, typer.Option(help="Least score of a link (0 to 1), also of a given mention.")] = 0.0
    same: Annotated[
        Path | None, typer.Option(help="Other ids of the same entities: lines CORPUS-ID<tab>LINKER-ID.")
    ] = None
    signs: Annotated[
        bool, typer.Option("--signs", help="Spaces are none: they part the signs of Chinese, as in tagging sets.")
    ] = False

"""`prepare clip-tokens`: a corpus of clips with a visual token for each clip."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from workbench.corpora.stored_corpus import CorpusFolder


def clip_tokens(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a corpus with clips.", show_default=False)],
    vocabulary: Annotated[Path, typer.Option(help="File written by `prepare clip-vocabulary`.", show_default=False)],
    options: WritingOptions,
) -> None:
    """Look up the visual token of every clip, into a new corpus. A model rejects tokens of another vocabulary.

    Example:

      workbench prepare clip-tokens corpora/clips --vocabulary corpora/clip-vocabulary.safetensors -o corpora/tokens
    """
    opened = open_corpus(str(corpus))
    from pipelines.stages.clip_codes import QuantizedClips
    from vision.video.clip_vocabulary import Vocabulary

    identity = Vocabulary.open(vocabulary).identity
    about = {**opened.manifest.about, "codes": identity}
    stage = QuantizedClips(str(vocabulary), identity)
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], opened.kind, about=about)

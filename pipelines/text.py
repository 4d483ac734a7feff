"""`prepare text`: documents -> a text corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines import options
from pipelines.console import run
from pipelines.files import expand
from pipelines.progress import show
from pipelines.runner import prepare
from pipelines.stages import Stage
from pipelines.stages.normalise_text import NormaliseText
from pipelines.stages.text_filters import LetterShare, MinimumLength, RepeatedLines
from workbench.errors import WorkbenchError

FORMS = ("NFC", "NFKC", "none")


def text(
    inputs: options.Inputs,
    output: options.Output,
    format: options.Format = None,
    option: options.FormatOptions = [],  # noqa: B006  (typer wants a list)
    split: options.Split = [],  # noqa: B006
    normalise: Annotated[str, typer.Option(help="Unicode form: NFC, NFKC or none.")] = "NFC",
    min_length: Annotated[int, typer.Option(help="Least characters of a document (white space not counted).")] = 1,
    min_letters: Annotated[float | None, typer.Option(help="Least share of letters (0 to 1).")] = None,
    max_repeated: Annotated[float | None, typer.Option(help="Largest share of repeated lines (Gopher: 0.3).")] = None,
    dedupe: options.Dedupe = False,
    licence: options.Licence = None,
    url: options.Url = None,
    on_error: options.SkipErrors = options.OnError.stop,
    numbered_keys: options.NumberedKeys = False,
    workers: options.Workers = 0,
    shard_size: options.ShardSize = 5_000,
    shard_bytes: options.ShardBytes = 128 << 20,
    limit: options.Limit = None,
) -> None:
    """Documents (plain text, JSON lines, WikiText, linked text, typing sets; also .gz, .zst) -> a text corpus.

    Texts that carry character spans (links, typed mentions) are stored as they are.

    Examples:

      workbench prepare text books/*.jsonl.zst --output corpora/books --split held-out=0.05

      workbench prepare text notes/ --output corpora/notes --option document=file

      workbench prepare text news.jsonl -o corpora/news --option text_field=body --min-length 200 --dedupe
    """
    paths = expand(inputs)
    reader = options.chosen_reader("text", format, paths, option)
    stages = text_stages(normalise, min_length, min_letters, max_repeated)
    job = options.job_of(
        reader,
        output,
        stages,
        split=split,
        licence=licence,
        url=url,
        on_error=on_error,
        dedupe=dedupe,
        numbered_keys=numbered_keys,
    )
    result = prepare(
        job, paths, options.limits(workers, shard_size, shard_bytes, limit), command=options.command_line()
    )
    show(result)


def text_stages(normalise: str, min_length: int, min_letters: float | None, max_repeated: float | None) -> list[Stage]:
    """The stages of a document, in order."""
    if normalise not in FORMS:
        raise WorkbenchError(f"--normalise {normalise!r}; allowed: {', '.join(FORMS)}")
    stages: list[Stage] = []
    if normalise != "none":
        stages.append(NormaliseText("NFKC" if normalise == "NFKC" else "NFC"))
    stages.append(MinimumLength(min_length))
    for name, share in (("--min-letters", min_letters), ("--max-repeated", max_repeated)):
        if share is not None and not 0 <= share <= 1:
            raise WorkbenchError(f"{name} {share} is a share: it must lie between 0 and 1")
    if min_letters is not None:
        stages.append(LetterShare(min_letters))
    if max_repeated is not None:
        stages.append(RepeatedLines(max_repeated))
    return stages


if __name__ == "__main__":
    run(text)

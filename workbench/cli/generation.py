"""The command `workbench generate`. Its inputs are checked before torch is loaded."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from workbench.core.files.drafts import atomic
from workbench.core.options.bounds import Count, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.corpora.stored_corpus import CorpusOrFile
from workbench.evaluation.scoring.inputs import input_corpus
from workbench.generation.decoding import Decoding
from workbench.interop.checkpoint_files import check_place
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder


def generate(
    run: Annotated[StoredFolder, typer.Argument(help="The run, or a checkpoint: a folder, a URL or package:NAME.")],
    source: Annotated[
        CorpusOrFile,
        typer.Argument(metavar="INPUT", help="Prompts: a text file with one prompt a line, or a corpus; also a URL."),
    ],
    decoding: Decoding,
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="The .jsonl file to write; default: the terminal.")
    ] = None,
    network: WhichNetwork = None,
    stream: Annotated[Word | None, typer.Option(help="The stream that is generated, if several fit.")] = None,
    objective: Annotated[Word | None, typer.Option(help="The objective whose head predicts, if several fit.")] = None,
    batch_size: Annotated[Count, typer.Option(help="Prompts per batch.")] = 16,
    limit: Annotated[Count | None, typer.Option(help="Generate only for the first N prompts.")] = None,
    trust: Trust = False,
) -> None:
    """Generate texts: continuations, translations, captions or masked words.

    Decoding is greedy by default. --beams N returns the best text of a beam search, --sample draws a text. The output
    has a line of JSON for each prompt: key (in a text file the line number), prompt, text, tokens, score
    (log-probability), ended, and the decoding. The line of a prompt that is too long has an error instead. The images
    of an image-text corpus are the prompts; in a video corpus the captioned segments are.

    Examples:

      workbench generate runs/gpt prompts.txt --sample --top-p 0.9 --output texts.jsonl

      workbench generate runs/t5 lines.txt --beams 4 --max-new-tokens 32
    """
    check_place(run)
    input_corpus(source)
    from workbench.evaluation.analysis.generation import generate_lines

    how: dict[str, Any] = {"network": network, "stream": stream, "objective": objective}
    how |= {"batch_size": batch_size, "limit": limit, "trust": trust}
    lines = generate_lines(run, source, decoding, **how)
    if output is None:
        console = Terminal(soft_wrap=True)
        for line in lines:
            console.print(line, markup=False, highlight=False)
        return
    count = 0
    with atomic(output) as file:
        for line in lines:
            file.write(f"{line}\n".encode())
            count += 1
    Terminal().print(f"{escape(str(output))}: {count:,} texts", highlight=False)

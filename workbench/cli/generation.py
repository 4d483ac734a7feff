"""The command `workbench generate`. What can be refused without torch is refused before it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from workbench.core.files.drafts import atomic
from workbench.core.options.bounds import Count, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.evaluation.scoring.inputs import input_corpus
from workbench.generation.decoding import Decoding
from workbench.interop.checkpoint_files import check_place
from workbench.runs.output_places import OutputFile


def generate(
    run: Annotated[Path, typer.Argument(help="The run, or a checkpoint: a folder, package:NAME.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="Prompts: a text file (a line each) or a corpus.")],
    decoding: Decoding,
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="File, .jsonl; default: the terminal.")
    ] = None,
    network: WhichNetwork = None,
    stream: Annotated[Word | None, typer.Option(help="The stream that grows, where several do.")] = None,
    objective: Annotated[Word | None, typer.Option(help="The objective that predicts, where several could.")] = None,
    batch_size: Annotated[Count, typer.Option(help="Prompts at once.")] = 16,
    limit: Annotated[Count | None, typer.Option(help="Only the first prompts.")] = None,
    trust: Trust = False,
) -> None:
    """Go on with texts, or say what a network makes of them (a translation, a caption, the masked words).

    Takes the most probable token each time; with --beams N the best text of a beam search, with --sample a drawn one.
    A line of JSON for each prompt: key (of a text file the number of its line), prompt, text, tokens, score
    (log-probability), ended, and what made it; of a prompt that is too long what is wrong with it (error).
    Of an image-text corpus its images are the prompts, of videos the segments that captions are of.

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

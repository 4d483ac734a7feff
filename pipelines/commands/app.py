"""The sub-commands of `workbench prepare`, in groups. Each is imported when it is called."""

from __future__ import annotations

import logging
import os

from rich.markup import escape
from rich.table import Table

from workbench.cli.app import Commands, Entry
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import options_of
from workbench.core.terminal import Terminal

GROUPS = {
    "corpora": {
        "text": "Convert documents (text, JSON lines, tables, Parquet, relations, ...) into a text corpus.",
        "image-text": "Convert images with captions, questions or classes into an image-text corpus.",
        "video-text": "Convert videos (or their frames) with captions or recognised speech into a video-text corpus.",
        "speech-text": "Convert speech with transcripts and times of words into log-mel spectra, one per 10 ms.",
        "triples": "Convert a knowledge graph into a triples corpus with one record per entity.",
        "corpus": "Filter, resize, split or dedupe a corpus into a new one, without the raw files.",
        "negatives": "Find hard negatives of pairs of texts by a run, for the objective contrast.",
        "join": "Join the parts of a corpus that were prepared with --part, on one machine or several.",
        "tokenizer": "Train a tokenizer on corpora, or add tokens to one.",
        "token-counts": "Count the tokens of corpora, for masking the rare ones more often (XLM).",
    },
    "images": {
        "regions": "Compute grid features (timm) or region features (torchvision detectors) once.",
        "import-regions": "Import precomputed region features (bottom-up attention, VinVL, UNITER, ...).",
        "answers": "List the most frequent answers of questions, for vision.answers and finetune vqa.",
        "clips": "Cut videos into clips and compute a feature of each once.",
        "clip-vocabulary": "Cluster the features of clips; the leaves of the tree are visual tokens (VideoBERT).",
        "clip-tokens": "Look up the visual token of every clip.",
    },
    "knowledge": {
        "graph": "Show the size and the gaps of a graph, or the triples of some entities.",
        "linker": "Build an entity linker from the labels and aliases in a graph, for `prepare link --linker`.",
        "link": "Find the entities of a graph in texts and captions, and store them as character spans.",
        "mentions": "Write mentions in their context with their candidate entities as choices (BLINK).",
        "sentences": "Write the triples of each entity as texts with links (KELM).",
        "facts": "Turn the facts of a graph into cloze sentences with candidates for the object.",
        "vectors": "Train vectors of the entities and relations of a graph, or import them.",
        "joint-vectors": "Train vectors of words and entities together, as Wikipedia2Vec does, for E-BERT.",
        "entity-vectors": "Encode the descriptions of all entities of a graph into vectors; add its relations.",
        "entity-vocabulary": "Count the linked entities of corpora, and keep the frequent ones: LUKE's entity tokens.",
    },
    "words": {
        "phrases": "Find the phrases of texts and store their places (mask_spans), for phrase-level masking.",
        "parses": "Parse the sentences of texts into dependency trees, as CoNLL-U: for K-Adapter.",
        "similar-words": "Train word vectors, and store the nearest words of each word: `replace.similar` of mlm.",
        "cooccurrence": "Count how often words occur near each other, and write the counts as a corpus (GloVe).",
        "supersenses": "Find the classes of the senses of each token that is a word (SenseBERT).",
        "word-pairs": "Write the pairs of words that a graph of senses relates (LIBERT).",
        "sentiment-lexicon": "Write the polarity of words as a table, for `prepare sentiment --lexicon` (SentiLR).",
        "sentiment": "Tag the words of texts with their part of speech and polarity (SentiLR).",
    },
}
READING = ("text", "image-text", "video-text", "speech-text", "triples")
"""The commands that read raw formats, by the kind of the formats."""
ELSEWHERE = {"graph": "graphs"}


def _entry(group: str, name: str, line: str) -> Entry:
    function = name.replace("-", "_")
    return Entry(f"pipelines.commands.{group}.{ELSEWHERE.get(name, function)}:{function}", line)


class Preparing(Commands):
    """The commands in their groups. The help of a command that reads raw files ends with the formats of its kind."""

    def run(self, arguments: list[str], called: str) -> None:
        log_output()
        if arguments and arguments[0] in self.entries and any(a.split("=")[0] == "--engine" for a in arguments[1:]):
            self._check_engine(arguments[0], called)
        try:
            super().run(arguments, called)
        except SystemExit as ended:
            if ended.code in (0, None) and arguments[0] in READING and "--help" in arguments:
                show_formats(arguments[0])
            raise

    def _check_engine(self, name: str, called: str) -> None:
        """
        Raises:
            WorkbenchError: the work of this command cannot be divided.
        """
        if all(option.name != "engine" for option in options_of(self.target(called, name))):
            raise WorkbenchError(
                f"'{called} {name}' is one unit of work, so it has no --engine; remove the option. Commands that write "
                "a corpus shard by shard have it"
            )

    def _explain(self, called: str) -> None:
        console = Terminal()
        console.print(f"Usage: [bold]{escape(called)}[/] COMMAND ...\n\n{escape(self.help)}")
        for group, commands in GROUPS.items():
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
            for name, line in commands.items():
                table.add_row(f"[bold]{escape(name)}[/]", escape(line))
            console.print(f"\n[bold]{group}[/]", table, sep="\n")
        console.print(
            f"\n'{escape(called)} COMMAND --help' shows its options; 'workbench formats' lists the raw formats."
        )


def log_output() -> None:
    """Commands log their results, unless WORKBENCH_LOG in the environment sets another level."""
    if "WORKBENCH_LOG" not in os.environ:
        logging.getLogger("pipelines").setLevel(logging.INFO)


def show_formats(kind: str) -> None:
    """The formats of a kind and their options, at the end of the command's help."""
    from pipelines.readers.catalogue import table

    console = Terminal()
    console.print(
        "[bold]Formats[/] (detected from the input, or --format), their options (--option NAME=VALUE) and defaults:\n"
    )
    console.print(table(kind, options=True))


app = Preparing(
    {name: _entry(group, name, line) for group, commands in GROUPS.items() for name, line in commands.items()},
    "Turn raw text, images, videos, speech or triples into a corpus; link entities, extract features, tokenizers.",
)

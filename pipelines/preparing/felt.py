"""How many words of a corpus have a part of speech and a polarity: what `prepare sentiment` tells in the end."""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from pipelines.preparing.coverage import of_records, sampled, share
from pipelines.stages.tag_sentiment import WORD
from workbench.corpora.corpus import Corpus


def felt(corpus: Corpus) -> Table:
    """Of the words of a corpus, those that a lexicon marked, and their polarities; for a person."""
    counts = Counter[str]()
    for sample in sampled(corpus):
        polarities = [name.partition(":")[2] for _, _, name in sample["tags"]]
        counts.update(polarities)
        felt_here = len(polarities) - polarities.count("neutral")
        words = sum(1 for _ in WORD.finditer(sample["text"]))
        counts.update(records=1, words=words, marked=len(polarities), felt=felt_here, moved=felt_here > 0)
    table = Table("", "", title=f"Polarities{of_records(counts['records'], corpus.records)}")
    table.add_row("records", f"{counts['records']:,}")
    table.add_row("with a polarity", share(counts["moved"], counts["records"]))
    for name, of, whole in (
        ("words", "words", ""),
        ("marked", "marked", "words"),
        ("of a polarity", "felt", "words"),
        ("positive", "positive", "felt"),
        ("negative", "negative", "felt"),
    ):
        table.add_row(name, share(counts[of], counts[whole]) if whole else f"{counts[of]:,}")
    return table

"""What knowledge systems read and no single file has: made from raw data once, for `prepare` to read."""

from __future__ import annotations

from pathlib import Path

from benchmarks.joint_vectors import write_joint_vectors
from benchmarks.raw_files import RawFiles
from benchmarks.reviews import write_polarities, write_reviews
from benchmarks.sense_examples import write_sense_examples


class RawKnowledge(RawFiles):
    """Reviews, examples, vectors."""

    def reviews(self) -> Path:
        ratings = self.data / "sentiment/movieReviewSnippets_GroundTruth.txt"
        return self._written("reviews.jsonl", lambda path: write_reviews(ratings, path))

    def polarities(self) -> Path:
        lexicon, wordnet = self.data / "sentiment/en-sentiment.xml", self.data / "wordnet"
        return self._written("polarity.tsv", lambda path: write_polarities(lexicon, wordnet, path))

    def sense_examples(self) -> Path:
        wordnet = self.data / "wordnet"
        return self._written("examples.jsonl", lambda path: write_sense_examples(wordnet, path))

    def joint_vectors(self, linked: Path, graph: Path | None = None) -> Path:
        """Vectors of words and entities of a corpus of linked texts, and of a graph."""
        return self._written("joint-vectors.txt", lambda path: write_joint_vectors(linked, path, graph))

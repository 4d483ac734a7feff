"""What benchmarks write of raw files is what the files say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.reviews import write_reviews


def test_ratings_become_five_classes(tmp_path: Path) -> None:
    rated = {"-3.9": "1", "-3.1": "1", "-2.9": "2", "-0.9": "3", "0.9": "3", "1.1": "4", "3.4": "5"}
    (tmp_path / "r").write_text("".join(f"{i}\t{rating}\ttext {rating}\n" for i, rating in enumerate(rated)))
    path = write_reviews(tmp_path / "r", tmp_path / "reviews.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"text": f"text {rating}", "labels": {"label": label}} for rating, label in rated.items()]

"""`prepare sentiment`: words with their part of speech and polarity."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.stages.sentiment_tags import TagSentiment
from tests.preparing import app
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.corpora.corpus import Corpus


def test_known_words_are_marked_in_place_of_other_tags(
    tmp_path: Path, json_lines, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("pipelines").setLevel(logging.NOTSET)
    lexicon = tmp_path / "polarity.tsv"
    lexicon.write_text("good\ta\t0.7\nhate\tv\t-0.8\nvideo\tn\t0\nold-fashioned\ta\t-0.1\n")
    rows = [
        {"text": "A good old-fashioned video, I hated it.", "labels": {"stars": 2}, "tags": [[0, 1, "x"]]},
        {"text": "No known word"},
    ]
    runner = CliRunner()
    raw, plain, tagged = (str(tmp_path / name) for name in ("raw", "plain", "tagged"))
    made = runner.invoke(app, ["text", str(json_lines("rows.jsonl", rows)), "-o", plain, "--workers", "1"])
    assert made.exit_code == 0, made.output
    command = ["sentiment", plain, "--lexicon", str(lexicon), "-o", tagged, "--workers", "1"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    corpus = Corpus.open(tagged)
    first, second = (corpus.read(0, record) for record in range(2))
    found = [(first["text"][start:end], tag) for start, end, tag in first["tags"]]
    assert found == [
        ("good", "a:positive"),
        ("old-fashioned", "a:negative"),
        ("video", "n:neutral"),
        ("hated", "v:negative"),
    ]
    assert first["labels"] == {"stars": 2}
    assert second["tags"] == []
    assert corpus.manifest.about["sentiment"] == {"lexicon_sha256": sha256_of(lexicon)}
    shown = dict(re.findall(r"│ (\w[^│]*\w) +│ +([^│]*?) +│", done.output))
    assert shown == {
        "read": "2",
        "records": "2",
        "with a polarity": "1 (50.0 %)",
        "words": "10",
        "marked": "4 (40.0 %)",
        "of a polarity": "3 (30.0 %)",
        "positive": "1 (33.3 %)",
        "negative": "2 (66.7 %)",
    }
    assert "4 words" in caplog.text
    assert "rows of both signs" not in caplog.text
    lexicon.write_text("good\ta\t0.7\ngood\ta\t-0.7\n")
    reported = runner.invoke(app, [*command[:-3], raw, "--workers", "1"])
    assert reported.exit_code == 0, reported.output
    assert "1 words have rows of both signs, such as good (a): they are averaged as senses" in caplog.text
    missing = runner.invoke(app, ["sentiment", plain, "--lexicon", str(tmp_path / "none.tsv"), "-o", raw + "-2"])
    assert missing.exit_code != 0


def test_a_lexicon_that_changed_is_not_taken_for_the_other(tmp_path: Path) -> None:
    lexicon = tmp_path / "polarity.tsv"
    lexicon.write_text("good\ta\t0.7\n")
    stage = TagSentiment(str(lexicon), sha256_of(lexicon))
    lexicon.write_text("good\ta\t-0.7\n")
    with pytest.raises(WorkbenchError, match="changed while it was in use"):
        stage({"text": "good"})

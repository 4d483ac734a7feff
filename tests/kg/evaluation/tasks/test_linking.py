"""`evaluate linking`: a linker of three cities against texts whose links are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kg.evaluation.task_options import LinkingScoring
from kg.evaluation.tasks.linking import Linking
from kg.graph.store import GraphStore
from kg.linking.linker import Linker
from workbench.cli.app import main
from workbench.core.errors import WorkbenchError
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result

EXCUSED = "the contracts of evaluations are about runs, and a linker is none"

TEXTS = [
    {"id": "troy", "label": "Paris", "description": "son of Priam, killed at Troy"},
    {"id": "france", "label": "Paris", "description": "capital on the Seine"},
    {"id": "oslo", "label": "Oslo"},
    {"id": "nameless"},
]
TRIPLES = [("france", "near", "oslo"), ("oslo", "near", "france"), ("nameless", "near", "oslo")]
RECORDS = [
    {"text": "Paris, son of Priam, killed at Troy: Oslo", "spans": [[0, 5, "troy", 1.0], [37, 41, "oslo", 1.0]]},
    {"text": "Paris and Rome", "spans": [[0, 5, "france", 1.0], [10, 14, "rome", 1.0]]},
    {"text": "Paris, nowhere", "mention": [7, 14], "spans": [], "choices": ["oslo", "troy"]},
    {"text": "Paris, nowhere", "mention": [0, 5], "spans": [[0, 5, "nameless", 1.0]], "choices": ["nameless"]},
]


@pytest.fixture
def linker(tmp_path: Path) -> Path:
    store = GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=TEXTS)
    Linker.from_store(store).save(tmp_path / "linker")
    return tmp_path / "linker"


def written(folder: Path, records: list[dict]) -> str:
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        for number, record in enumerate(records):
            writer.add(str(number), record)
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={})
    return str(folder)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    return written(tmp_path / "texts", RECORDS)


def scored(linker: Path, corpus: str, **options: object) -> Result:
    return evaluate(Linking(), LinkingScoring(run=linker, corpus=corpus, **options))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_given_mentions_and_found_ones(linker: Path, corpus: str) -> None:
    result = scored(linker, corpus)
    assert result.counts == {"texts": 3, "given mentions": 6, "of them NIL": 2, "links found": 4}
    assert result.numbers == pytest.approx(
        {
            "given mentions: accuracy": 3 / 4,  # the nameless entity has no name
            "given mentions: candidate recall": 3 / 4,
            "given mentions: NIL precision": 1,  # Rome, nowhere
            "given mentions: NIL recall": 1,
            "precision": 3 / 4,
            "recall": 3 / 4,
            "F1": 3 / 4,
            "precision of links that overlap annotations": 3 / 4,
            "F1 of links that overlap annotations": 3 / 4,
        }
    )
    common = result.baselines["most common entity"]
    assert common["given mentions: accuracy"] == common["recall"] == 2 / 4, "Paris is the city, whatever the text"
    first = result.baselines["first candidate"]
    assert first["given mentions: accuracy"] == 1, "of the record of the nameless entity"
    assert "precision" not in first
    assert result.examples[0]["gold"] == ["nameless"]


def test_a_threshold_makes_nil(linker: Path, corpus: str) -> None:
    result = scored(linker, corpus, min_score=0.999)
    assert result.options == {"min_score": 0.999}
    assert result.counts["links found"] == 0
    assert result.numbers["given mentions: accuracy"] == 1 / 4, "only Oslo is certain"
    assert result.numbers["given mentions: NIL precision"] == 2 / 5


def test_other_ids_of_the_same_entities(linker: Path, tmp_path: Path) -> None:
    records = [{"text": "Oslo", "spans": [[0, 4, "Q585", 1.0]]}]
    corpus = written(tmp_path / "wikidata", records)
    with pytest.raises(WorkbenchError, match=r"knows none of the 1 mentions.*'Q585'.*'france'.*--same"):
        scored(linker, corpus)
    same = tmp_path / "same.tsv"
    same.write_text("Q585\toslo\n")
    assert scored(linker, corpus, same=same).numbers["F1"] == 1
    for wrong in ("Q585 oslo\n", "Q585\t\n", "\toslo\n"):
        same.write_text(wrong)
        with pytest.raises(WorkbenchError, match="line 1"):
            scored(linker, corpus, same=same)
    same.write_bytes(b"Q585\toslo\n\xe9\toslo\n")
    with pytest.raises(WorkbenchError, match="line 2: not valid UTF-8"):
        scored(linker, corpus, same=same)
    with pytest.raises(WorkbenchError, match="no such file"):
        scored(linker, corpus, same=tmp_path / "nothing")


def test_a_corpus_without_links_is_refused(linker: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"no links to compare with.*spans"):
        scored(linker, written(tmp_path / "bare", [{"text": "Oslo"}]))


def test_by_command(linker: Path, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["workbench", "evaluate", "linking", corpus, "--linker", str(linker), "--limit", "2"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    (path,) = (tmp_path / "evaluations" / "linker").glob("*.json")
    record = json.loads(path.read_text())
    assert record["counts"]["texts"] == 2
    assert record["options"] == {"limit": 2}
    assert record["inputs"]["read"]["linker"], "which linker it was"
    assert record["inputs"]["checkpoint"].startswith(str(linker))


def reported(start: int, end: int, entity: str, score: float, right: int) -> list:
    return [start, end, entity, score, {"right": right}]


def by_linker(text: str, *spans: list, given: str = "supervise") -> dict:
    return {"text": text, "spans": list(spans), "meta": {"linker": {"candidates": 2, "given": given}}}


def test_of_candidates_the_marked_one_is_right(linker: Path, tmp_path: Path) -> None:
    records = [
        by_linker("Paris", reported(0, 5, "france", 0.6, 0), reported(0, 5, "troy", 0.4, 1)),
        by_linker(
            "Paris and Oslo", reported(0, 5, "france", 0.6, 1), reported(0, 5, "troy", 0.4, 0), [10, 14, "oslo", 1.0]
        ),
        by_linker("Oslo or Paris", reported(0, 4, "oslo", 1.0, 0)),
    ]
    result = scored(linker, written(tmp_path / "candidates", records))
    assert result.counts["given mentions"] == 2, "nobody said that Oslo is right in the second text"
    assert result.counts["left out: no candidate is right"] == 1
    assert result.counts["links found"] == 4, "that of the mention which was left out is none of them"
    assert result.numbers["given mentions: accuracy"] == 1 / 2, "Paris is the city by the linker, whatever was marked"
    assert result.numbers["recall"] == 1 / 2
    assert result.baselines["first candidate"]["given mentions: accuracy"] == 1 / 2


@pytest.mark.parametrize("given", ["replace", "supervise"])
def test_candidates_that_nobody_marked_are_refused(linker: Path, tmp_path: Path, given: str) -> None:
    records = [by_linker("Paris", [0, 5, "france", 0.6], [0, 5, "troy", 0.4], given=given)]
    with pytest.raises(WorkbenchError, match=r"the 2 links .* none is marked as right; .*--candidates N --supervise"):
        scored(linker, written(tmp_path / "candidates", records))


NAMES = [("上海", "city", 1.0), ("海水", "sea", 1.0), ("水果", "fruit", 2.0), ("水果", "band", 1.0)]
"""In 上海水果 the sea is no mention: 上海 begins first."""
JOINED = [
    {"text": "上海水果店有海水", "spans": [[0, 2, "city", 1.0], [2, 4, "band", 1.0], [6, 8, "sea", 1.0]]},
    {"text": "水果无海", "spans": [[0, 2, "fruit", 1.0]], "mention": [3, 4], "choices": ["sea"]},
]


def separated(record: dict, **meta: object) -> dict:
    """The record with a space between any two signs."""
    record = {**record, "text": " ".join(record["text"]), "meta": meta}
    record["spans"] = [[2 * start, 2 * end - 1, *rest] for start, end, *rest in record["spans"]]
    if "mention" in record:
        start, end = record["mention"]
        record["mention"] = [2 * start, 2 * end - 1]
    return record


def test_texts_whose_spaces_are_none_are_linked_as_their_records_note(tmp_path: Path) -> None:
    linker = tmp_path / "linker"
    Linker.from_names(NAMES).save(linker)
    joined = scored(linker, written(tmp_path / "joined", JOINED))
    assert joined.counts == {"texts": 2, "given mentions": 5, "of them NIL": 1, "links found": 4}
    assert 0 < joined.numbers["F1"] < 1
    noted = {"linker": {"name": "gazetteer", "signs": True}}
    by_note = scored(linker, written(tmp_path / "noted", [separated(record, **noted) for record in JOINED]))
    others = written(tmp_path / "others", [separated(record) for record in JOINED])
    for result in (by_note, scored(linker, others, signs=True)):
        assert result.numbers == joined.numbers
        assert result.counts == joined.counts
        assert result.baselines == joined.baselines
        assert result.examples == joined.examples
    assert scored(linker, others).counts["links found"] == 0, "spaces are spaces where nobody says otherwise"


def test_candidates_in_texts_whose_spaces_are_none(tmp_path: Path) -> None:
    linker = tmp_path / "linker"
    Linker.from_names(NAMES).save(linker)
    spans = [reported(0, 2, "fruit", 0.7, 0), reported(0, 2, "band", 0.3, 1), reported(3, 5, "sea", 1.0, 0)]
    record = {"text": "水果无海水", "spans": spans}
    noted = {"candidates": 2, "given": "supervise"}
    joined = scored(linker, written(tmp_path / "joined", [{**record, "meta": {"linker": noted}}]))
    apart = separated(record, linker={**noted, "signs": True})
    result = scored(linker, written(tmp_path / "separated", [apart]))
    assert result.counts == joined.counts
    assert result.counts["left out: no candidate is right"] == 1
    assert result.numbers == joined.numbers
    assert result.baselines == joined.baselines

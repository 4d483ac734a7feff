"""The linker in a spaCy pipeline."""

from __future__ import annotations

import pytest

from kg.linking.linker import Linker
from workbench.core.errors import WorkbenchError

spacy = pytest.importorskip("spacy")
component = pytest.importorskip("kg.linking.spacy_component")

TEXT = "Paris is in New York, not near Parisians."


@pytest.fixture
def linker():
    return Linker.from_names(
        [("Paris", "Q90", 3), ("Paris", "Q1", 1), ("New York", "Q60", 1), ("is in New", "Q2", 1), ("sians", "Q3", 1)]
    )


@pytest.fixture
def nlp(linker, tmp_path):
    linker.save(tmp_path / "linker")
    nlp = spacy.blank("en")
    nlp.add_pipe("workbench_linker", config={"path": str(tmp_path / "linker")})
    return nlp


def test_links_become_entities(nlp):
    doc = nlp(TEXT)
    assert [(e.text, e.kb_id_, e.label_) for e in doc.ents] == [
        ("Paris", "Q90", "ENTITY"),
        ("is in New", "Q2", "ENTITY"),
    ]
    assert [s._.link_score for s in doc.spans["workbench_linker"]] == pytest.approx([0.25 * 0.75, 0.12])


def test_entities_of_others_stay(nlp):
    ruler = nlp.add_pipe("entity_ruler", before="workbench_linker")
    ruler.add_patterns([{"label": "GPE", "pattern": "Paris"}, {"label": "GPE", "pattern": "New York"}])
    doc = nlp(TEXT)
    assert [(e.text, e.label_, e.kb_id_) for e in doc.ents] == [("Paris", "GPE", "Q90"), ("New York", "GPE", "")]
    assert len(doc.spans["workbench_linker"]) == 2


def test_a_pipeline_is_saved_with_its_linker(nlp, tmp_path):
    expected = [e.kb_id_ for e in nlp(TEXT).ents]
    for _ in range(2):  # over itself
        nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "linker").rename(tmp_path / "elsewhere")
    again = spacy.load(tmp_path / "pipeline")
    assert [e.kb_id_ for e in again(TEXT).ents] == expected


def test_without_a_linker(linker, tmp_path):
    nlp = spacy.blank("en")
    added = nlp.add_pipe("workbench_linker")
    with pytest.raises(WorkbenchError, match="has no linker"):
        nlp(TEXT)
    added.path = str(tmp_path / "none")
    with pytest.raises(WorkbenchError, match="there is no linker at"):
        nlp(TEXT)
    added.linker = linker
    assert len(nlp(TEXT).ents) == 2
    nlp.to_disk(tmp_path / "pipeline")
    added.linker = Linker.from_names([("near", "Q5", 1)])
    nlp.to_disk(tmp_path / "pipeline")
    assert Linker.load(tmp_path / "pipeline" / "workbench_linker").link("near") == [(0, 4, "Q5", 0.12)]


def test_several_processes(nlp):
    docs = list(nlp.pipe([TEXT] * 4, n_process=2))
    assert [[e.kb_id_ for e in doc.ents] for doc in docs] == [["Q90", "Q2"]] * 4

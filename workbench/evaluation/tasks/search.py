"""Search: the documents that answer each query, ranked by the vectors of a network, compared with BM25 and chance.

nDCG@10, recall@100 and MRR@10 over graded judgments, as BEIR (Thakur et al., arXiv:2104.08663) has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.text_search import Texts, TextVectors, best_documents, best_of
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_network
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result, corpus_input
from workbench.evaluation.search_options import SearchScoring
from workbench.metrics.bm25 import Bm25
from workbench.metrics.search_scores import NAMES, NDCG, RECALL, random_order, search_scores
from workbench.metrics.tallies import Tally
from workbench.pretraining.objective import Objective
from workbench.runs.loaded_run import LoadedRun

Judgments = dict[str, dict[str, int]]
EXAMPLES, SHOWN = 12, 300


class TextSearch(DownstreamTask[Tuning, SearchScoring]):
    """Ranks of judged documents; any network that reads texts has vectors for it, and nothing is trained."""

    scoring = SearchScoring
    objective = Objective
    panels = ("workbench.evaluation.task_panels:documents_found",)

    def chosen(self, loaded: LoadedRun, options: SearchScoring) -> EvaluatedRun:
        names = [name for name in loaded.model.networks if name not in loaded.model.followers]
        if options.network is None and len(names) > 1:
            raise WorkbenchError(f"{options.run} has the networks {', '.join(names)}; choose one: --network")
        return find_network(loaded, options.run, task=options.task, network=options.network, control=options.control)

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: SearchScoring) -> Result:
        collection = Corpus.open(scoring.documents)
        queries, documents = Texts.of(corpus, scoring.limit), Texts.of(collection)
        judged = read_judgments(scoring.judgments)
        asked = [n for n, name in enumerate(queries.ids) if any(g > 0 for g in judged.get(name, {}).values())]
        if not asked:
            raise WorkbenchError(
                f"no query of {corpus.place} has a relevant document in {scoring.judgments}; its first ids are "
                f"{', '.join(queries.ids[:3])}, and those of the file {', '.join([*judged][:3])}"
            )
        texts, grades = [queries.texts[n] for n in asked], [judged[queries.ids[n]] for n in asked]
        vectors = TextVectors(run.loaded, run.objective.network, scoring.pool, scoring.batch_size)
        of_documents = vectors.of_documents(documents.texts, scoring.document_prefix)
        found = [*best_documents(vectors.of_queries(texts, scoring.query_prefix), of_documents, RECALL)]
        rows = [search_scores(_ids(documents, *each), of) for each, of in zip(found, grades, strict=True)]
        counts = {"queries": len(asked), "documents": len(documents.ids)}
        counts["queries without a relevant document"] = len(queries.ids) - len(asked)
        counts["judged documents that are not there"] = len({name for of in grades for name in of} - {*documents.ids})
        judgments = {"path": str(scoring.judgments), "sha256": sha256_of(scoring.judgments)}
        tallies = {name: Tally.mean([row[name] for row in rows]) for name in NAMES}
        lines = [*_lines([queries.keys[n] for n in asked], found, grades, documents)]
        return Result(
            task=self.name,
            numbers=_means(rows),
            counts=counts,
            variant=f"vectors: {vectors.pool}; gains are grades, as in trec_eval",
            baselines=_baselines(texts, grades, documents),
            inputs={"documents": corpus_input(collection), "judgments": judgments},
            examples=[*_examples(texts, found, grades, documents, rows)],
            predictions=EvaluationItems(lines, tallies),
        )


def _ids(documents: Texts, best: np.ndarray, scores: np.ndarray) -> list[str]:
    return [documents.ids[number] for number in best.tolist()]


def _baselines(texts: list[str], grades: list[dict[str, int]], documents: Texts) -> dict[str, dict[str, float]]:
    index = Bm25(documents.texts)
    of_words = []
    for text, of in zip(texts, grades, strict=True):
        best, scores = best_of(index.scores(text), RECALL)
        of_words.append(search_scores(_ids(documents, best[scores > 0], scores), of))
    names = {*documents.ids}
    chance = _means(random_order(of, names & of.keys(), len(names)) for of in grades)
    return {"BM25": _means(of_words), "random order": chance}


def read_judgments(path: Path) -> Judgments:
    """The grades of documents by query, of lines `query document grade` (BEIR, with a header) or `query 0 document
    grade` (TREC), in columns separated by white space.

    Raises:
        WorkbenchError: there is no such file, or a line has other columns.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise WorkbenchError(f"{path}: cannot be read: {error}; wanted is a file of judgments") from error
    found: Judgments = {}
    for number, line in enumerate(lines, 1):
        columns = line.split("\t") if "\t" in line else line.split()
        if not columns or (number == 1 and columns[0] == "query-id"):
            continue
        try:
            query, *between, document, score = columns
            grade = int(score)
            if len(between) > 1:
                raise ValueError
        except ValueError:
            raise WorkbenchError(
                f"{path}, line {number}: {line!r}; allowed: QUERY DOCUMENT GRADE, or QUERY 0 DOCUMENT GRADE, where "
                "GRADE is a whole number"
            ) from None
        found.setdefault(query, {})[document] = grade
    return found


def _means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    listed = [*rows]
    return {name: float(np.mean([row[name] for row in listed])) for name in NAMES}


def _lines(
    keys: list[str], found: list[tuple[np.ndarray, np.ndarray]], grades: list[dict[str, int]], documents: Texts
) -> Iterator[dict[str, Any]]:
    """A query an item: the best documents with their scores, and the relevant ones with their grades."""
    for key, (best, scores), of in zip(keys, found, grades, strict=True):
        gold = [[name, grade] for name, grade in of.items() if grade > 0]
        listed = {"prediction": [documents.ids[i] for i in best[:NDCG]], "scores": scores[:NDCG].tolist()}
        yield {"key": key, "gold": gold, **listed}


def _examples(
    texts: list[str],
    found: list[tuple[np.ndarray, np.ndarray]],
    grades: list[dict[str, int]],
    documents: Texts,
    rows: list[dict[str, float]],
) -> Iterator[dict[str, Any]]:
    """The queries whose documents are ranked worst, with the first documents and their grades."""
    for number in np.argsort([row[NAMES[0]] for row in rows], kind="stable")[:EXAMPLES].tolist():
        first = [(documents.texts[i][:SHOWN], grades[number].get(documents.ids[i], 0)) for i in found[number][0][:3]]
        yield {"text": texts[number], "documents": first, NAMES[0]: rows[number][NAMES[0]]}

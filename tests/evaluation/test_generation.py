"""`workbench generate`: prompts from files and corpora, the line of a text, and refused inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.evaluation.conftest import network, recipe_tree
from tests.loaded_runs import generate_texts
from workbench.cli.generation import generate
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.generation import Generator
from workbench.generation.decoding import Decoding
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

CAUSAL = {"builder": "packed", "max_length": 24, "begin": "cls", "visibility": "causal"}
SHORT = Decoding(max_new_tokens=5)


@pytest.fixture(scope="session")
def causal(texts: Path) -> Path:
    """A small language model that packs its documents, and a masked one next to it."""
    objectives = [{"objective": "clm", "network": "gpt"}, {"objective": "mlm", "network": "bert", "view": "masked"}]
    tree = recipe_tree(texts, {"gpt": network(16), "bert": network(8)}, objectives)
    tree["tasks"]["text"]["sequence"] = CAUSAL
    tree["train"]["max_steps"] = 30
    return pretrain(recipe_from_dict(tree), texts / "runs" / "causal")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("the red house\n\nthe\nthe blue boat is lost\n")
    return path


def reported(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def test_lines_are_continued_with_the_likeliest_tokens(causal: Path, lines: Path, tmp_path: Path) -> None:
    generate(causal, lines, SHORT, tmp_path / "out.jsonl", batch_size=2)
    made = reported(tmp_path / "out.jsonl")
    assert [(text["key"], text["prompt"]) for text in made] == [
        ("1", "the red house"),
        ("3", "the"),
        ("4", "the blue boat is lost"),
    ]
    assert made[0]["made_by"]["max_new_tokens"] == 5
    assert made[0]["made_by"]["objective"] == "clm"
    assert "checkpoints" in made[0]["made_by"]["checkpoint"] or "best" in made[0]["made_by"]["checkpoint"]
    loaded = load(causal)
    gpt, tokenizer = loaded.model.network("gpt"), loaded.tokenizer
    assert tokenizer is not None
    for text in made:
        ids = [tokenizer.id("cls"), *tokenizer.encode(text["prompt"]).ids.tolist()]
        new: list[str] = []
        while len(new) < 5:
            [sequence] = loaded.tasks["text"].evaluating().sequences([{"key": "", "draw": (0,), "text": "the"}])
            fields = {name: values[:1].repeat(len(ids)) for name, values in sequence.streams["text"].items()}
            counted = torch.arange(len(ids)).numpy()
            fields |= {"input_ids": torch.tensor(ids).numpy(), "position_ids": counted, "rank": counted}
            sequence.streams["text"] = fields
            state = gpt(collate([sequence]))["text"][-1]
            ids.append(int((gpt.embeddings["text"].token.weight @ state).argmax()))
            if ids[-1] == tokenizer.id("sep"):
                break
            new += tokenizer.tokens(ids[-1:])
        assert text["tokens"] == new
        assert text["ended"] == (ids[-1] == tokenizer.id("sep"))
        assert text["text"] == tokenizer.decode(ids[-len(new) - text["ended"] :] if new else [])


def test_a_corpus_of_texts_gives_prompts(causal: Path, texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(causal, texts / "texts", Decoding(max_new_tokens=2, beams=2), limit=3)
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [text["key"] for text in made] == ["r0", "r1", "r2"]
    assert made[0]["prompt"].startswith("the red house")
    assert made[0]["made_by"]["beams"] == 2


def test_texts_in_python_do_not_depend_on_the_batch(causal: Path) -> None:
    loaded, prompts = load(causal), ["the red", "the old boat is", "a"]
    for decoding in (SHORT, Decoding(max_new_tokens=5, sample=True, seed=3)):
        together = generate_texts(loaded, prompts, decoding)
        assert together == generate_texts(loaded, prompts, decoding, batch_size=1)
    assert len(together) == 3


class Shift(torch.nn.Module):
    """h + h[-1], of the rows that are read now alone."""

    def forward(self, hidden: dict[str, torch.Tensor], context: Any) -> dict[str, torch.Tensor]:
        return {**hidden, "text": hidden["text"] + torch.roll(hidden["text"], 1, 0)}


def test_a_layer_that_mixes_rows_without_a_kv_cache_is_refused(causal: Path) -> None:
    loaded = load(causal)
    loaded.model.network("gpt").layers.append(Shift())
    with pytest.raises(WorkbenchError, match="mixes rows by other means than attention and has no cache"):
        generate_texts(loaded, ["the red house"], SHORT)


def test_a_run_that_predicts_no_next_token_is_refused(pretrained: Path, causal: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"none of its objectives \(mlm\).*clm.*visibility: causal"):
        Generator(load(pretrained))
    with pytest.raises(WorkbenchError, match="network 'bert' cannot"):
        Generator(load(causal), network_name="bert")
    with pytest.raises(WorkbenchError, match="unknown network 'typo'"):
        Generator(load(causal), network_name="typo")
    with pytest.raises(WorkbenchError, match="unknown stream 'target'"):
        Generator(load(causal), stream="target")
    assert Generator(load(causal), network_name="gpt", stream="text").placed.name == "clm"


def test_several_networks_that_can_are_distinguished(texts: Path) -> None:
    objectives = [
        {"objective": "clm", "network": "small"},
        {"objective": "clm", "name": "other", "network": "large", "view": "second"},
    ]
    tree = recipe_tree(texts, {"small": network(8), "large": network(16)}, objectives)
    tree["tasks"]["text"]["sequence"] = CAUSAL
    loaded = load(pretrain(recipe_from_dict(tree), texts / "runs" / "two-causal"))
    with pytest.raises(WorkbenchError, match="large, small; choose one: --network"):
        Generator(loaded)
    assert Generator(loaded, network_name="large").network.sizes["text"] == 16


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("the red house is old . " * 8, r"line 1 has \d\d tokens, more than fit .* 24;"),
        ("the red house", "at most 36 new tokens"),
    ],
)
def test_a_prompt_without_room_is_refused(causal: Path, prompt: str, said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        generate_texts(load(causal), [prompt], Decoding(max_new_tokens=60))


def test_a_prompt_that_is_too_long_stops_no_other(causal: Path, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "prompts.txt").write_text(f"the red house\n\n{'the red house is old . ' * 8}\nthe\n")
    generate(causal, tmp_path / "prompts.txt", SHORT, tmp_path / "out.jsonl")
    made = reported(tmp_path / "out.jsonl")
    assert [text["key"] for text in made] == ["1", "3", "4"]
    assert [sorted(text) for text in made[:2]] == [
        ["ended", "key", "made_by", "prompt", "score", "text", "tokens"],
        ["error", "key", "made_by", "prompt"],
    ]
    assert "line 3 has 48 tokens" in made[1]["error"]
    assert "1 of 3 prompts have no text, the first: line 3" in caplog.text
    generate(causal, tmp_path / "prompts.txt", SHORT, tmp_path / "short.jsonl", limit=1)
    (alone,) = reported(tmp_path / "short.jsonl")
    assert alone.pop("score") == pytest.approx(made[0].pop("score"), rel=1e-5)
    assert alone == made[0]


def test_input_that_is_none_is_refused(causal: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    for source, said in ((tmp_path / "empty.txt", "no prompts"), (tmp_path / "none", "text file or a corpus")):
        with pytest.raises(WorkbenchError, match=said):
            generate(causal, source, SHORT, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()

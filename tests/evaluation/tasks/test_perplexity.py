"""Perplexity: every token predicted once, from what stands before it; equal to Hugging Face's losses."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch import Tensor

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import TEXTS, make_texts, network, prepare, pretrain_on, recipe_tree
from tests.interop.test_language_models import END, SENTINELS, released
from tests.interop.worlds import WORDS, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.corpus import Corpus
from workbench.evaluation.likelihood_options import PerplexityScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.objective_task import items
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.token_memory import MemoryWriter, TokenMemory
from workbench.evaluation.tasks.perplexity import Perplexity, check_stride, windows_of
from workbench.interop.run_or_checkpoint import load
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.builders.document import DocumentBuilder
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

LONG = [" ".join(WORDS * 5), " ".join(WORDS[:3]), " ".join(WORDS[4:12] * 7)]


def causal(folder: Path, name: str = "causal", **sequence: Any) -> Path:
    """A run that reads from left to right, on what `make_texts` made."""
    tree = recipe_tree(folder, network(16), [{"objective": "clm"}])
    tree["tasks"]["text"]["sequence"] |= {"visibility": "causal", "max_length": 6, **sequence}
    return pretrain(recipe_from_dict(tree), folder / "runs" / name)


def contract_world(folder: Path) -> World:
    texts = make_texts(folder)
    return World(causal(texts), str(texts / "texts"), pretrain_on(texts), {"stride": 3})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their GPT-2 with 40 positions and random weights."""
    folder = tmp_path_factory.mktemp("checkpoint") / "gpt2"
    released(folder, "gpt2", tokenizers.Tokenizer.from_file(str(tokenizer(folder / "tokenizer.json"))).get_vocab_size())
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the results of checkpoints go


def scored(run: Path, corpus: str, **options: Any) -> Result:
    return evaluate(Perplexity(), PerplexityScoring(run=run, corpus=corpus, **options))


@pytest.mark.parametrize("begin", [None, "cls"])
@pytest.mark.parametrize("stride", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [*range(8), 10, 11, 12, 13, 23])
def test_every_token_is_predicted_once(texts: Path, begin: str | None, stride: int | None, count: int) -> None:
    words = Tokenizer.load(texts / "tokenizer.json")
    builder = DocumentBuilder(words, 6, begin=begin, end="sep", visibility="causal", chars_per_token=1.0)
    text = words.encode(" ".join(TEXTS)).part(0, count)
    whole = [*builder.frame.begin, *text.ids.tolist(), *builder.frame.end]
    windows = list(windows_of("a", text, builder, check_stride(stride, builder), "clm"))
    labels = [label for window in windows for label in window.targets["clm"]["labels"]]
    assert labels == whole[1:]
    done = 1
    for number, window in enumerate(windows):
        ids, rows = window.streams["text"]["input_ids"].tolist(), window.targets["clm"]["rows"]
        end = done + len(rows)
        assert len(ids) <= 6
        assert ids[-(end - 1 - done + 1) :] == whole[done - 1 : end - 1]  # the row before each token
        known = len(ids) - len(builder.frame.begin) * (number > 0)
        assert ids[len(ids) - known :] == whole[end - 1 - known : end - 1]
        if number and stride:
            assert len(rows) <= stride
            assert known == min(6 - len(builder.frame.begin), end - 1 - len(builder.frame.begin))
        assert window.streams["text"]["position_ids"].tolist() == list(range(len(ids)))
        done = end
    with pytest.raises(WorkbenchError, match="--stride 7: a window has"):
        check_stride(7, builder)


@torch.no_grad()
def theirs(model: Any, ids: list[int], length: int, stride: int) -> Tensor:
    """-log p of all tokens but the first, each by a pass of its own over the window that it is predicted in."""
    found = []
    for place in range(1, len(ids)):
        window = max(0, -(-(place - length) // stride))  # the first predicts `length`, the others `stride` each
        end = min(length + window * stride, len(ids) - 1)
        logits = model(torch.tensor([ids[max(0, end - length) : place]])).logits[0, -1]
        found.append(-logits.log_softmax(0)[ids[place]])
    return torch.stack(found)


@pytest.mark.parametrize("stride", [None, 16])
def test_losses_are_those_of_the_library(gpt2: Path, tmp_path: Path, stride: int | None) -> None:
    corpus = prepare(tmp_path, "long", [{"text": text} for text in LONG])
    found = scored(gpt2, corpus, stride=stride)
    model = transformers.AutoModelForCausalLM.from_pretrained(gpt2).eval()
    words = load(gpt2).tokenizer
    assert words is not None
    ids = [[*words.encode(text).ids.tolist(), END] for text in LONG]
    nats = [theirs(model, each, 40, stride or 40).double() for each in ids]
    total = float(sum(each.sum() for each in nats))
    assert found.counts["tokens"] == sum(map(len, nats))
    assert found.numbers["loss"] == pytest.approx(total / found.counts["tokens"], abs=1e-5)
    assert found.numbers["perplexity"] == pytest.approx(math.exp(found.numbers["loss"]))
    size = sum(len(text[words.encode(text).ends[0] :].encode()) for text in LONG)
    assert found.numbers["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-5)
    (short,) = (model(torch.tensor([each]), labels=torch.tensor([each])).loss for each in ids[1:2])
    lines = [json.loads(line) for line in next(Path("evaluations/gpt2").glob("*.jsonl")).read_text().splitlines()]
    assert lines[1]["loss"] == pytest.approx(short.item(), abs=1e-5)
    assert [line["tokens"] for line in lines] == [len(each) - 1 for each in ids]


def test_an_encoder_decoder_predicts_its_targets(tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    tokenizer(folder / "tokenizer.json", SENTINELS)
    released(folder, "t5", 140)
    corpus = prepare(tmp_path, "texts", [{"text": text} for text in LONG])
    found = scored(folder, corpus)
    run = Perplexity().open(PerplexityScoring(run=folder, corpus=corpus))
    task, placed = run.task, run.objective
    (samples,) = items(run, Corpus.open(corpus), 8, None)
    sequences = task.sequences(samples)
    placed.objective.corrupt(sequences, Draws(task.seed, task.name, placed.name, "evaluate", number=()))
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    total, count = 0.0, 0
    for sequence in sequences:
        labels = torch.from_numpy(np.array(sequence.targets[placed.name]["labels"]))[None]
        with torch.no_grad():
            given = torch.from_numpy(sequence.streams["text"]["input_ids"])[None]
            total += float(model(input_ids=given, labels=labels).loss) * labels.numel()
        count += labels.numel()
    assert found.counts == {"texts": 3, "tokens": count}
    assert found.numbers == pytest.approx({"loss": total / count, "perplexity": math.exp(total / count)}, rel=1e-4)
    with pytest.raises(WorkbenchError, match="--unigrams: the objective 'span_corruption'"):
        scored(folder, corpus, unigrams=corpus)


def test_a_memory_as_long_as_the_text_reads_it_as_one(texts: Path, tmp_path: Path) -> None:
    model = network(16) | {"memory": 60}
    model["streams"]["text"]["max_positions"] = None
    model["layers"][0]["rotary"] = 100
    tree = recipe_tree(texts, model, [{"objective": "clm"}])
    sequence = {"builder": "document", "max_length": 6, "visibility": "causal", "begin": None, "end": None}
    tree["tasks"]["text"] |= {"order": "continuous", "sequence": sequence}
    run = pretrain(recipe_from_dict(tree), tmp_path / "run")
    rows = [{"text": " ".join(TEXTS[:count])} for count in (6, 1, 3)]
    corpus = prepare(tmp_path, "read-on", rows)
    found = scored(run, corpus, batch_size=2)
    loaded = load(run)
    task, placed = loaded.tasks["text"], loaded.tasks["text"].objectives[0]
    whole = task.with_builder(DocumentBuilder(task.builder.tokenizer, 100, None, None, 1.0, visibility="causal"))
    samples = [{"key": str(i), "draw": (0, 0, i), **row} for i, row in enumerate(rows)]
    micro = whole.micro_batch(samples, (0, 0, 0))
    with torch.no_grad():
        output = loaded.model(micro, [placed.name])[placed.name]
    count = sum(micro.views["main"].streams["text"].lengths) - len(rows)
    assert found.counts["tokens"] == count
    assert found.numbers["loss"] == pytest.approx(float(output.loss) / count, abs=1e-5)


def test_unigrams_are_counted_where_it_is_said(texts: Path, tmp_path: Path) -> None:
    run = causal(texts, "unigrams", begin="cls")
    corpus = prepare(tmp_path, "seen", [{"text": text} for text in TEXTS[:2]])
    own, others = (scored(run, corpus, **options) for options in ({}, {"unigrams": str(texts / "texts")}))
    words = Tokenizer.load(texts / "tokenizer.json")

    def counted(of: list[str]) -> Counter[int]:
        return Counter(i for text in of for i in [*words.encode(text).ids.tolist(), words.id("sep")])

    seen, known = counted(TEXTS[:2]), counted(TEXTS)
    total = seen.total()
    entropy = -sum(n / total * math.log(n / total) for n in seen.values())
    assert own.baselines["unigrams of the test set"]["loss"] == pytest.approx(entropy)
    smoothed = known.total() + words.vocab_size
    cross = -sum(n / total * math.log((known[i] + 1) / smoothed) for i, n in seen.items())
    assert others.baselines["unigrams of texts"]["loss"] == pytest.approx(cross)
    assert others.inputs["unigrams"]["path"].endswith("texts")
    assert own.numbers == others.numbers


def test_bytes_are_those_of_what_is_predicted(texts: Path, tmp_path: Path) -> None:
    """Nothing says the first token where no token stands before it."""
    corpus = prepare(tmp_path, "words", [{"text": "über a river"}])
    whole, rest = (scored(causal(texts, f"from-{begin}", begin=begin), corpus) for begin in ("cls", None))
    assert whole.counts["bytes"] == len("über a river".encode())
    words = Tokenizer.load(texts / "tokenizer.json")
    first = int(words.encode("über a river").ends[0])
    assert rest.counts["bytes"] == len("über a river"[first:].encode())
    assert rest.counts["tokens"] == whole.counts["tokens"] - 1


def test_a_corpus_without_texts_is_refused(texts: Path, tmp_path: Path) -> None:
    corpus = prepare(tmp_path, "pairs", [{"translations": {"en": "a river", "de": "ein Fluss"}}])
    run = causal(texts, "of-texts", begin="cls")
    with pytest.raises(WorkbenchError, match="it has no 'text'"):
        scored(run, corpus)
    with pytest.raises(WorkbenchError, match="it has no 'text'"):
        scored(run, str(texts / "texts"), unigrams=corpus)


def test_tokens_that_the_tokenizer_does_not_know_are_reported(
    texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = causal(make_texts(tmp_path))
    known = scored(run, str(texts / "texts"))
    assert "unknown tokens" not in known.counts
    assert "unknown to the tokenizer" not in caplog.text
    corpus = prepare(tmp_path, "snow", [{"text": "\u2603 \u2604 \u2605"}, {"text": "the red house"}])
    found = scored(run, corpus)
    begins = len(load(run).tasks["text"].builder.frame.begin)
    assert found.counts["unknown tokens"] == 3 - (not begins)
    assert found.numbers["unknown_share"] == pytest.approx(found.counts["unknown tokens"] / found.counts["tokens"])
    assert "are unknown to the tokenizer" in caplog.text


def test_a_memory_is_mixed_in_as_the_formula_says(gpt2: Path, tmp_path: Path) -> None:
    """kNN-LM (arXiv:1911.00172, equations 2 and 3) by the library's states, with the whole memory as neighbours."""
    corpus, other = (prepare(tmp_path, name, [{"text": t} for t in texts]) for name, texts in _SPLIT.items())
    found = scored(gpt2, corpus, memory=other, neighbours=9999, memory_share=0.3, memory_temperature=40.0)
    model = transformers.AutoModelForCausalLM.from_pretrained(gpt2).eval()
    words = load(gpt2).tokenizer
    assert words is not None
    states, tokens, logits = {}, {}, {}
    for name, (text,) in _SPLIT.items():
        ids = torch.tensor([*words.encode(text).ids.tolist(), END])
        with torch.no_grad():
            output = model(ids[None], output_hidden_states=True)
        states[name], logits[name], tokens[name] = output.hidden_states[-1][0, :-1], output.logits[0, :-1], ids[1:]
    asked, known = states["asked"].double().numpy(), states["known"].double().numpy()
    distances = ((asked[:, None] - known[None]) ** 2).sum(-1) / 40
    weights = np.exp(-distances) / np.exp(-distances).sum(1, keepdims=True)
    right = tokens["asked"].numpy()[:, None] == tokens["known"].numpy()[None]
    alone = logits["asked"].softmax(-1).gather(1, tokens["asked"][:, None]).double().numpy()[:, 0]
    nats = -np.log(0.3 * (weights * right).sum(1) + 0.7 * alone)
    assert found.numbers["loss"] == pytest.approx(nats.mean(), abs=1e-5)
    assert found.baselines["the network alone"]["loss"] == pytest.approx(-np.log(alone).mean(), abs=1e-5)
    assert found.baselines["the network alone"]["bits_per_byte"] > 0
    assert found.baselines["a memory of permuted tokens"]["loss"] != pytest.approx(found.numbers["loss"], abs=1e-4)
    assert found.counts["tokens of the memory"] == len(known)


def test_only_the_nearest_states_of_a_memory_count() -> None:
    written = MemoryWriter()
    written(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([7, 8, 7]), torch.zeros(3))
    memory = TokenMemory(written, neighbours=2, share=0.5)
    costs = memory(torch.tensor([[0.0]]), torch.tensor([7]), torch.tensor([math.log(4)]))
    assert math.exp(-costs[0, 0]) == pytest.approx(0.5 / (1 + math.exp(-1)) + 0.5 / 4)


def test_a_memory_of_the_answers_is_refused(gpt2: Path, tmp_path: Path) -> None:
    corpus = prepare(tmp_path, "asked", [{"text": LONG[1]}])
    with pytest.raises(WorkbenchError, match="holds every answer"):
        scored(gpt2, corpus, memory=corpus)


_SPLIT = {"asked": [LONG[1]], "known": [" ".join(WORDS[2:9])]}

"""XLNet: both streams, the memory and the losses of its golden numbers, and of the Hugging Face class both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from torch import Tensor

from tests.contracts.cases import FamilyCase
from tests.interop.worlds import WORDS, equal, model_of, recipe_file, texts, there_and_back, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.interop.families.xlnet import Xlnet
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.network import Network
from workbench.runs.loaded_run import load
from workbench.sequences.batch import Batch, Stream

CONFIG: dict[str, Any] = {
    "model_type": "xlnet",
    "vocab_size": 30,
    "d_model": 16,
    "n_layer": 2,
    "n_head": 2,
    "d_inner": 24,
}
CASE = FamilyCase(config=CONFIG, golden=("hf/xlnet_two_stream", "hf/xlnet_two_stream_mem"))


class Golden:
    """A folder of golden numbers, as our network and batch."""

    def __init__(self, folder: Path) -> None:
        config = FamilyConfig(json.loads((folder / "config.json").read_text())["config"])
        self.weights, self.inputs, self.wanted = (
            load_file(folder / f"{kind}.safetensors") for kind in ("weights", "inputs", "outputs")
        )
        weights, unused = to_ours(self.weights, Xlnet().rules(config))
        assert unused == []
        self.network = Network(Xlnet().network(config)).eval()
        assert self.network.load_state_dict(weights, strict=False).missing_keys == []
        self.bias, self.memory = weights["plm.bias"], config.get("mem_len", 0)
        self.real = self.inputs["attention_mask"].bool()

    def batch(self) -> Batch:
        """The target i sees the target j where the golden mask hides nothing; their ranks are how many it sees."""
        lengths = self.real.sum(1).tolist()
        sequences = [self._streams(number, length) for number, length in enumerate(lengths)]
        return Batch({name: joined([streams[name] for streams in sequences]) for name in ("text", "query")})

    def _streams(self, number: int, length: int) -> dict[str, dict[str, Tensor]]:
        targets, hidden = self.inputs["target_mapping"][number].argmax(-1), self.inputs["perm_mask"][number]
        rank = torch.zeros(length, dtype=torch.long)
        rank[targets] = 1 + (hidden[targets][:, targets] == 0).sum(1)
        seen = rank[:, None] >= rank[None, :]
        assert torch.equal(seen, (hidden[:length, :length] == 0) | torch.eye(length).bool())
        text = {
            "input_ids": self.inputs["input_ids"][number, :length],
            "token_type_ids": self.inputs["token_type_ids"][number, :length],
            "position_ids": torch.arange(length),
            "rank": rank,
        }
        query = {name: values[targets] for name, values in text.items()}
        return {"text": text, "query": {**query, "rank": rank[targets] - 1}}

    def check(self, states: dict[str, Tensor], prefix: str = "") -> None:
        """Logits and loss."""
        table = self.network.embeddings["text"].token.weight
        logits = F.linear(states["query"], table, self.bias)
        torch.testing.assert_close(logits, self.wanted[f"{prefix}logits"].flatten(0, 1), atol=1e-5, rtol=1e-5)
        loss = F.cross_entropy(logits, self.inputs["labels"].flatten())
        torch.testing.assert_close(loss, self.wanted[f"{prefix}loss"], atol=1e-5, rtol=1e-5)


def joined(sequences: list[dict[str, Tensor]]) -> Stream:
    lengths = [len(fields["input_ids"]) for fields in sequences]
    fields = {name: torch.cat([one[name] for one in sequences]) for name in sequences[0]}
    return Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)


@pytest.mark.parametrize("name", ["xlnet_two_stream", "xlnet_two_stream_mem"])
@torch.no_grad()
def test_both_streams_equal_the_golden_numbers(shared: Path, name: str) -> None:
    golden = Golden(shared / "golden/hf" / name)
    context = Context(golden.batch(), keep_hidden=True, cache=KVCache("rows"))
    states = golden.network(golden.batch(), context)
    for number, hidden in enumerate(context.hidden):
        content, query = (golden.wanted[f"states.{2 * number + side}"] for side in range(2))
        torch.testing.assert_close(hidden["text"], content[golden.real], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(hidden["query"], query.flatten(0, 1), atol=1e-5, rtol=1e-5)
    golden.check(states)
    if golden.memory:
        whole = torch.nonzero(golden.real.all(1)).flatten().tolist()  # others of theirs end with padding
        assert whole
        for sequence in whole:
            kept = context.updated_cache.pick([sequence]).cut(golden.memory).kept
            for number in range(len(golden.network.layers)):
                wanted = golden.wanted[f"mems.{number}"][:, sequence]
                torch.testing.assert_close(kept[f"{number}.0"]["text"], wanted, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_second_segment_reads_the_golden_memory(shared: Path) -> None:
    """What is remembered stands before the text, in the first segment, and all may see it."""
    golden = Golden(shared / "golden/hf/xlnet_two_stream_mem")
    rows, texts = golden.memory, len(golden.real)
    zero = torch.zeros(texts * rows, dtype=torch.long)
    fields = {
        "input_ids": zero,
        "token_type_ids": zero,
        "position_ids": torch.arange(-rows, 0).repeat(texts),
        "rank": zero - 1,
    }
    layers = range(len(golden.network.layers))
    mems = [golden.wanted[f"mems.{number}"].transpose(0, 1).flatten(0, 1) for number in layers]
    kept = {f"{number}.0": {"text": mem} for number, mem in enumerate(mems)}
    cache = KVCache("rows", {"text": Stream(fields, torch.arange(texts + 1) * rows, [rows] * texts)}, kept)
    golden.check(golden.network(golden.batch(), Context(golden.batch(), cache=cache)), "second_segment.")


SPECIAL = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}


def theirs(vocab_size: int, **changes: Any) -> transformers.XLNetLMHeadModel:
    torch.manual_seed(0)
    sizes = {**CONFIG, "d_model": 32, "n_head": 4, "vocab_size": vocab_size, **changes}
    model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**sizes, **SPECIAL))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def masks(rank: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The arguments of their class for one sequence's order."""
    hidden = rank[:, None] < rank[None, :]
    hidden |= torch.eye(len(rank)).bool() & (rank > 0)[:, None]  # theirs lets content see itself
    return {"perm_mask": hidden.float()[None], "target_mapping": F.one_hot(targets, len(rank)).float()[None]}


@torch.no_grad()
def check_logits(run: Path, model: Any) -> None:
    """Of permuted sequences of a run, against a model of theirs."""
    loaded = load(run)
    for i in range(3):
        sample = {"key": "it", "text": " ".join(WORDS[i:]), "draw": (i,)}
        batch = loaded.tasks["it"].micro_batch([sample], (0, i, 0)).views["main"]
        text, query = batch.streams["text"].fields, batch.streams["query"].fields
        network = loaded.model.networks["main"]
        found = loaded.model.heads["plm"].logits(network, network(batch)["query"])
        given = {"input_ids": text["input_ids"][None], "token_type_ids": text["token_type_ids"][None]}
        wanted = model(**given, **masks(text["rank"], query["position_ids"])).logits[0]
        assert len(wanted) > 2
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_model_comes_in_and_goes_out(tmp_path: Path) -> None:
    words = tokenizer(tmp_path / "tokenizer.json")
    model = theirs(tokenizers.Tokenizer.from_file(str(words)).get_vocab_size())
    model.save_pretrained(tmp_path / "theirs")
    spec = model_of("xlnet", json.loads((tmp_path / "theirs/config.json").read_text()))
    task = {
        "corpora": [str(texts(tmp_path / "texts"))],
        "sequence": {"builder": "document", "max_length": 24},
        "objectives": [{"objective": "plm", "rate": 0.4}],
    }
    recipe = recipe_file(
        tmp_path / "recipe.yaml", {**spec, "init_from": str(tmp_path / "theirs")}, task, tokenizer=str(words)
    )
    written = there_and_back(tmp_path, recipe, "xlnet")
    original = load_file(tmp_path / "theirs/model.safetensors")
    assert original.keys() <= written.keys()
    equal({name: tensor for name, tensor in written.items() if name in original}, original)
    check_logits(tmp_path / "run", model)
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    assert isinstance(exported, transformers.XLNetLMHeadModel)
    check_logits(tmp_path / "run", exported)


@torch.no_grad()
def test_one_that_reads_from_left_to_right_does_so_here() -> None:
    model = theirs(20, attn_type="uni")
    config = FamilyConfig(model.config.to_dict())
    network = Network(Xlnet().network(config)).eval()
    weights, _ = to_ours(model.state_dict(), Xlnet().rules(config))
    network.load_state_dict(weights, strict=False)
    assert Xlnet().visibility(config) == "causal"
    ids, places = torch.tensor([4, 9, 1, 13, 7]), torch.arange(5)
    types = torch.zeros_like(ids)
    fields = {"input_ids": ids, "token_type_ids": types, "position_ids": places, "rank": places}
    found = network(Batch({"text": joined([fields])}))["text"]
    wanted = model.transformer(ids[None], token_type_ids=types[None]).last_hidden_state[0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "reported"), [({"clamp_len": 5}, "clamp_len = 5"), ({"d_head": 4}, "d_head x n_head = 8, d_model = 16")]
)
def test_what_ours_do_not_have_is_reported(change: dict[str, Any], reported: str) -> None:
    with pytest.raises(WorkbenchError, match=reported):
        Xlnet().network(FamilyConfig({**CONFIG, **change}))

"""The peers of `benchmarks.whole_run`: plain training loops that pad, as the releases and the usual scripts do.

    python -m benchmarks.padded_loops bert FOLDER --output progress.jsonl --length 128 --batch 8 --steps 100

    bert       BertForMaskedLM with DataCollatorForLanguageModeling's masking
    k-bert     the same encoder with soft positions and a dense visible matrix made in the loader (the release)
    ernie-thu  the same encoder's layers with an entity vector at every position, entity prediction at every position
               (the release)
    uniter     words and regions padded, then moved together (the release's gather)

`--vocabulary all` predicts every position and lets the loss choose, as BertForMaskedLM and ERNIE-THU's release do;
`masked` predicts the masked positions alone, as the releases of K-BERT and UNITER do. Each reads the documents into
memory, tokenises them by the batch in one loader worker, shuffles, masks 15 %, clips to 1.0, steps a fused AdamW, and
writes a line every ten steps. float32, dropout 0.1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast
from transformers.models.bert.modeling_bert import BertAttention

from benchmarks.whole_run_inputs import ENTITY_HEADS, ENTITY_SIZE, FEATURES, HEADS, HIDDEN, INNER, LAYERS
from kg.vectors.vectors import load_vectors

Batch = dict[str, Tensor]


class Documents(Dataset):
    """The documents with their numbers."""

    def __init__(self, folder: Path) -> None:
        self.documents = [json.loads(line) for line in (folder / "documents.jsonl").open(encoding="utf-8")]

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**self.documents[number], "number": number}


class Collator:
    """Tokenises, pads and masks a batch of documents."""

    def __init__(self, folder: Path, length: int, padding: str) -> None:
        specials = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **specials)
        ends = [(token, self.tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
        template = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
        self.tokenizer.backend_tokenizer.post_processor = template
        self.folder, self.length, self.padding = folder, length, padding
        self.collator = DataCollatorForLanguageModeling(self.tokenizer, mlm_probability=0.15)

    def __call__(self, documents: list[dict[str, Any]]) -> Batch:
        batch = self.encode([document["text"] for document in documents])
        ids, labels = self.collator.torch_mask_tokens(batch["input_ids"], batch.pop("special_tokens_mask"))
        return {"input_ids": ids, "attention_mask": batch["attention_mask"], "labels": labels}

    def encode(self, texts: list[str], **more: Any) -> Any:
        padding = "max_length" if self.padding == "max" else True
        return self.tokenizer(
            texts, truncation=True, max_length=self.length, padding=padding, return_tensors="pt",
            return_special_tokens_mask=True, **more,
        )  # fmt: skip

    def width(self, longest: int) -> int:
        """The width that sequences are padded to."""
        return self.length if self.padding == "max" else longest


class TreeCollator(Collator):
    """K-BERT: branches after the mentions, soft positions, and the visible matrix of every sentence."""

    def __init__(self, folder: Path, length: int, padding: str) -> None:
        super().__init__(folder, length, padding)
        spelt = json.loads((folder / "triples.json").read_text(encoding="utf-8"))
        self.branches = {
            name: [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
            for name, texts in spelt.items()
        }

    def __call__(self, documents: list[dict[str, Any]]) -> Batch:
        texts = [document["text"] for document in documents]
        encoded = self.tokenizer(texts, truncation=True, max_length=self.length, return_offsets_mapping=True)
        trees = [
            self.tree(ids, offsets, document["spans"])
            for ids, offsets, document in zip(encoded["input_ids"], encoded["offset_mapping"], documents, strict=True)
        ]
        width = self.width(max(len(ids) for ids, _, _, _ in trees))
        ids, positions = np.zeros((2, len(trees), width), np.int64)
        visible = np.zeros((len(trees), 1, width, width), np.bool_)
        closed = np.ones((len(trees), width), np.int64)
        for row, (tokens, soft, matrix, injected) in enumerate(trees):
            n = len(tokens)
            ids[row, :n], positions[row, :n], visible[row, 0, :n, :n] = tokens, soft, matrix
            closed[row, 1 : n - 1] = injected[1:-1]
        visible[:, 0, :, 0] |= ~visible[:, 0].any(-1)  # padding has to see something
        masked, labels = self.collator.torch_mask_tokens(torch.from_numpy(ids), torch.from_numpy(closed))
        rows = torch.from_numpy(np.array([len(tree[0]) for tree in trees]))
        return {
            "input_ids": masked, "position_ids": torch.from_numpy(positions), "labels": labels,
            "attention_mask": torch.from_numpy(visible), "rows": rows,
        }  # fmt: skip

    def tree(self, ids: list[int], offsets: list[tuple[int, int]], spans: list[Any]) -> Any:
        """Tokens, soft positions, visible matrix and which tokens were injected."""
        ends = {end: place for place, (_, end) in enumerate(offsets) if end}
        starts = {start: place for place, (start, end) in enumerate(offsets) if end}
        hung = {ends[s[1]]: (starts[s[0]], self.branches[s[2]]) for s in spans if s[1] in ends and s[0] in starts}
        room = self.length - len(ids)
        tokens: list[int] = []
        soft: list[int] = []
        trunk: list[int] = []
        groups: list[tuple[list[int], list[list[int]]]] = []
        for place, token in enumerate(ids):
            trunk.append(len(tokens))
            tokens.append(token)
            soft.append(place)
            if place not in hung:
                continue
            first, branches = hung[place]
            mention, grown = [trunk[p] for p in range(first, place + 1)], []
            for branch in branches:
                room = room - len(branch) if len(branch) <= room else -1  # the first that does not fit is the last
                if room >= 0:
                    grown.append(list(range(len(tokens), len(tokens) + len(branch))))
                    tokens += branch
                    soft += range(place + 1, place + 1 + len(branch))
            groups.append((mention, grown))
        injected = np.ones(len(tokens), np.bool_)
        injected[trunk] = False
        return tokens, soft, visible_matrix(len(tokens), trunk, groups), injected


def visible_matrix(size: int, trunk: list[int], groups: list[tuple[list[int], list[list[int]]]]) -> np.ndarray:
    """Who sees whom [size, size]: the trunk itself, a branch itself and its mention, a mention its branches."""
    matrix = np.zeros((size, size), np.bool_)
    matrix[np.ix_(trunk, trunk)] = True
    for mention, branches in groups:
        for branch in branches:
            matrix[np.ix_(branch, mention + branch)] = True
            matrix[np.ix_(mention, branch)] = True
    return matrix


class EntityCollator(Collator):
    """ERNIE-THU: the entity of every token (0: none), noised, and the labels among the batch's entities."""

    def __init__(self, folder: Path, length: int, padding: str) -> None:
        super().__init__(folder, length, padding)
        self.rows = load_vectors(folder / "entities.safetensors").rows

    def __call__(self, documents: list[dict[str, Any]]) -> Batch:
        encoded = self.encode([document["text"] for document in documents], return_offsets_mapping=True)
        ids, labels = self.collator.torch_mask_tokens(encoded["input_ids"], encoded["special_tokens_mask"])
        entities = torch.zeros_like(ids)
        starts = encoded["offset_mapping"][..., 0].numpy()
        plain = encoded["special_tokens_mask"].numpy() == 0
        for row, document in enumerate(documents):
            place = {start: i for i, start in enumerate(starts[row].tolist()) if plain[row, i]}
            for start, _, name, _ in document["spans"]:
                if start in place:
                    entities[row, place[start]] = self.rows[name] + 1
        candidates = torch.unique(torch.cat([torch.zeros(1, dtype=torch.long), entities.flatten()]))
        wanted = torch.where(entities > 0, torch.searchsorted(candidates, entities), -100)
        draw = torch.rand(entities.shape)
        other = candidates[torch.randint(len(candidates), entities.shape)]
        noisy = torch.where(draw < 0.05, other, torch.where(draw < 0.2, 0, entities)) * (entities > 0)
        return {
            "input_ids": ids, "attention_mask": encoded["attention_mask"], "labels": labels,
            "entities": noisy, "candidates": candidates, "entity_labels": wanted,
        }  # fmt: skip


class RegionCollator(Collator):
    """UNITER: captions, region features and boxes, and where each of them goes in the sequence."""

    def __call__(self, documents: list[dict[str, Any]]) -> Batch:
        batch = super().__call__(documents)
        stored = [np.load(self.folder / "regions" / f"{document['number']}.npz") for document in documents]
        features = [torch.from_numpy(arrays["features"]) for arrays in stored]
        boxes = [torch.from_numpy(arrays["boxes"]) for arrays in stored]
        counts = torch.tensor([len(rows) for rows in features])
        sizes = batch["attention_mask"].sum(1)
        text = batch["input_ids"].shape[1]
        most = max(self.width_of_regions(), int(counts.max()))
        width = text + most if self.padding == "max" else int((sizes + counts).max())
        place = torch.arange(width).expand(len(documents), -1)
        gather = torch.where(place < sizes[:, None], place, (text + place - sizes[:, None]).clamp_max(text + most - 1))
        batch["features"] = _padded(features, most)
        batch["boxes"] = _seven(_padded(boxes, most))
        batch["gather"] = gather
        batch["attention_mask"] = (place < (sizes + counts)[:, None]).long()
        return batch

    def width_of_regions(self) -> int:
        return 100 if self.padding == "max" else 0


def _padded(rows: list[Tensor], most: int) -> Tensor:
    """Tensors [n_i, width] as [batch, most, width]."""
    whole = torch.zeros(len(rows), most, rows[0].shape[1])
    for i, each in enumerate(rows):
        whole[i, : len(each)] = each
    return whole


def _seven(boxes: Tensor) -> Tensor:
    """x1, y1, x2, y2 -> these and width, height, area."""
    size = boxes[..., 2:] - boxes[..., :2]
    return torch.cat([boxes, size, size.prod(-1, keepdim=True)], -1)


class Plain(nn.Module):
    """BERT: the encoder and its vocabulary."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, vocabulary: str) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=INNER,
        )  # fmt: skip
        self.model = BertForMaskedLM(config)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss and the number of real tokens."""
        states = self.model.bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        return self.masked_words(states, batch["labels"]), batch["attention_mask"].sum()

    def masked_words(self, states: Tensor, labels: Tensor) -> Tensor:
        """The loss over masked words."""
        chosen = labels != -100
        if self.vocabulary == "masked":
            return F.cross_entropy(self.model.cls(states[chosen]), labels[chosen])
        return F.cross_entropy(self.model.cls(states).flatten(0, 1), labels.flatten())


class Tree(Plain):
    """K-BERT: the encoder with soft positions and a dense mask."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}
        return self.masked_words(self.model.bert(**inputs).last_hidden_state, batch["labels"]), batch["rows"].sum()


class Aggregator(nn.Module):
    """ERNIE-THU's layer on padded streams; `first` is the release's "mix" layer, `last` has no entity output."""

    def __init__(self, config: BertConfig, entity: BertConfig, first: bool, last: bool) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.entity_attention = None if first else BertAttention(entity)
        self.inner, self.entity_inner = nn.Linear(HIDDEN, INNER), nn.Linear(ENTITY_SIZE, INNER)
        self.outer, self.norm = nn.Linear(INNER, HIDDEN), nn.LayerNorm(HIDDEN, 1e-12)
        self.entity_outer = None if last else nn.Linear(INNER, ENTITY_SIZE)
        self.entity_norm = nn.LayerNorm(ENTITY_SIZE, 1e-12)

    def forward(self, text: Tensor, entity: Tensor, mask: Tensor, entity_mask: Tensor) -> tuple[Tensor, Tensor]:
        text = self.attention(text, mask)[0]
        if self.entity_attention is not None:
            entity = self.entity_attention(entity, entity_mask)[0]
        fused = F.gelu(self.inner(text) + self.entity_inner(entity))
        text = self.norm(text + F.dropout(self.outer(fused), 0.1, self.training))
        if self.entity_outer is not None:
            entity = self.entity_norm(entity + F.dropout(self.entity_outer(fused), 0.1, self.training))
        return text, entity


class Fused(Plain):
    """ERNIE-THU: plain layers, then aggregators; masked words and entities predicted at every position."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, vocabulary: str) -> None:
        super().__init__(folder, tokenizer, vocabulary)
        vectors = load_vectors(folder / "entities.safetensors").vectors
        self.table = nn.Embedding.from_pretrained(torch.cat([torch.zeros(1, ENTITY_SIZE), vectors]))
        config = self.model.config
        entity = BertConfig(hidden_size=ENTITY_SIZE, num_attention_heads=ENTITY_HEADS)
        entity._attn_implementation = config._attn_implementation
        plain = self.model.bert.encoder.layer
        self.model.bert.encoder.layer = plain[: LAYERS - 3]
        self.fusion = nn.ModuleList(Aggregator(config, entity, i == 0, i == 2) for i in range(3))
        self.dense, self.norm = nn.Linear(HIDDEN, ENTITY_SIZE), nn.LayerNorm(ENTITY_SIZE, 1e-12)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        ids, mask, entities = batch["input_ids"], batch["attention_mask"], batch["entities"]
        text = self.model.bert(ids, mask).last_hidden_state
        linked = entities > 0
        linked[:, 0] = True  # the release's entity mask is 1 at [CLS]
        entity, seen = self.table(entities), mask[:, None, None].bool()
        for layer in self.fusion:
            text, entity = layer(text, entity, seen, linked[:, None, None])
        words = self.masked_words(text, batch["labels"])
        meant = self.norm(F.gelu(self.dense(text))) @ self.table(batch["candidates"]).T
        return words + _mean_loss(meant, batch["entity_labels"]), mask.sum() + linked.sum()


class Regions(Plain):
    """UNITER: words and regions in one sequence."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, vocabulary: str) -> None:
        super().__init__(folder, tokenizer, vocabulary)
        self.project, self.box = nn.Linear(FEATURES, HIDDEN), nn.Linear(7, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN, 1e-12) for _ in range(3))
        self.kind = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        words = self.model.bert.embeddings(batch["input_ids"])
        regions = self.norms[0](self.project(batch["features"])) + self.norms[1](self.box(batch["boxes"])) + self.kind
        regions = F.dropout(self.norms[2](regions), 0.1, self.training)
        both = torch.cat([words, regions], 1)
        both = both.gather(1, batch["gather"][..., None].expand(-1, -1, HIDDEN))
        mask = batch["attention_mask"]
        states = self.model.bert.encoder(both, mask[:, None, None].bool()).last_hidden_state
        return self.masked_words(states[:, : batch["labels"].shape[1]], batch["labels"]), mask.sum()


def _mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over labels; 0 where the batch has none."""
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum().clamp_min(1)


PEERS: dict[str, tuple[type[Collator], Callable[..., Plain]]] = {
    "bert": (Collator, Plain),
    "k-bert": (TreeCollator, Tree),
    "ernie-thu": (EntityCollator, Fused),
    "uniter": (RegionCollator, Regions),
}


def train(options: argparse.Namespace) -> None:
    """Train and write a line {step, tokens, loss} every `log_every` steps."""
    torch.manual_seed(0)
    make_collator, make_model = PEERS[options.recipe]
    collator = make_collator(options.folder, options.length, options.padding)
    model = make_model(options.folder, collator.tokenizer, options.vocabulary).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    loader = DataLoader(
        Documents(options.folder), options.batch, shuffle=True, num_workers=options.workers, collate_fn=collator,
        drop_last=True,
    )  # fmt: skip
    step, tokens, total = 0, 0, torch.zeros(())
    with options.output.open("w") as output:
        while step < options.steps:
            for batch in loader:
                loss, count = model(batch)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                step, tokens, total = step + 1, tokens + int(count), total + loss.detach()
                if step % options.log_every == 0:
                    line = {"step": step, "tokens": tokens, "loss": float(total) / options.log_every}
                    output.write(json.dumps(line) + "\n")
                    output.flush()
                    tokens, total = 0, torch.zeros(())
                if step == options.steps:
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=list(PEERS))
    parser.add_argument("folder", type=Path, help="what benchmarks.whole_run_inputs wrote")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--padding", choices=["longest", "max"], default="longest")
    parser.add_argument("--vocabulary", choices=["all", "masked"], default="all")
    train(parser.parse_args())


if __name__ == "__main__":
    main()

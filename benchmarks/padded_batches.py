"""The loaders of the padded peers (`benchmarks.padded_loops`): documents tokenised, padded and masked by the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from torch.utils.data import Dataset
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

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

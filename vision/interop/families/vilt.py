"""Hugging Face ViLT (Kim et al., arXiv:2102.03334): words and patches in one ViT.

The types of the two modalities are rows of a table there, a layer's vectors here; a third row, of a second image, is
unused. Their head for retrieval has one output, the log-odds (`outputs: 1`); that of pretraining is not in the library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.interop.caption_recipe import captions
from vision.interop.families.vit import NO_DROPOUT, block_config, block_rules
from vision.interop.patch_names import IMAGE, ClassToken, check_colours, image_size_of, image_stream, patch_map
from workbench.core.errors import WorkbenchError
from workbench.interop import bert_config, bert_names
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import DROPOUT, ModelDescription
from workbench.interop.rules import Buffer, RowRanges, Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

STREAMS = ["text", "image"]
TEXT, PATCHES = "vilt.embeddings.text_embeddings", "vilt.embeddings.patch_embeddings.projection"
TYPES = "vilt.embeddings.token_type_embeddings.weight"
HEADS = {"mlm": "ForMaskedLM", "itm": "ForImageAndTextRetrieval", "answers": "ForQuestionAnswering"}
HEAD_EPS = 1e-5  # of the norm in their classifier of answers


class Vilt(CheckpointFamily):
    """Hugging Face ViLT: `text` and `image` streams, `joint` layers with norms in front, one last norm for both; heads
    mlm, itm (one output), answers (the norm before the activation)."""

    prefix = "vilt."
    corpus = "image-text"
    free = DROPOUT | {"normalisation"}

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "vilt"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        check_colours(config)
        if not config.get("qkv_bias", True):
            raise WorkbenchError(
                "qkv_bias = false: allowed: true, as attention has a bias in all of its maps or in none"
            )
        full = FamilyConfig({**NO_DROPOUT, "max_position_embeddings": 40, **config})
        text = bert_config.text_stream(full)
        image = image_stream(
            config["hidden_size"],
            config["image_size"],
            config["patch_size"],
            interpolate=True,
            dropout=full["hidden_dropout_prob"],
        )
        block = {**bert_config.block(full), "norm_place": "pre"}
        return NetworkSpec(
            {"text": text, "image": image},
            [
                {"layer": "vision.modality", "streams": STREAMS},
                {"layer": "joint", "streams": STREAMS, **block, "repeat": config["num_hidden_layers"]},
                {"layer": "joint_norm", "streams": STREAMS, "norm_eps": bert_config.norm_eps(config)},
            ],
            ["text"],
        )

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {
            "mlm": bert_config.word_head(config),
            "itm": {"objective": "vision.itm", "outputs": 1},
            "answers": {"objective": "vision.answers", "norm_place": "before", "norm_eps": HEAD_EPS, **_named(config)},
        }

    def task(self, config: FamilyConfig) -> Spec:
        """The authors' image size (section 4.2 of the paper): the longer side is at most 5/3 of the shorter."""
        patch, side = config["patch_size"], config["image_size"]
        sides = {"shorter": side, "longer": side * 5 // 3, "patch": patch}
        image = {"image_processor": "vision.aspect_patches", **sides, "class_row": True}
        return captions(self, config, ["mlm", "itm"], image, captions="one")

    def rules(self, config: FamilyConfig) -> list[Rule]:
        count, size, patch = config["num_hidden_layers"], config["hidden_size"], config["patch_size"]
        types = tuple((f"layers.0.vectors.{name}", row) for row, name in enumerate(STREAMS))
        words = f"{TEXT}.word_embeddings.weight"
        return [
            *bert_names.embeddings(TEXT),
            RowRanges(TYPES, types, config.get("modality_type_vocab_size", 2)),
            ClassToken(("vilt.embeddings.cls_token", "vilt.embeddings.position_embeddings"), IMAGE),
            patch_map(PATCHES, size, patch),
            SameTensor(f"{PATCHES}.bias", f"{IMAGE}.project.bias"),
            *(rule for i in range(count) for rule in block_rules(f"vilt.encoder.layer.{i}", f"layers.{1 + i}")),
            *bert_names.both("vilt.layernorm", f"layers.{1 + count}.norm"),
            *bert_names.both("vilt.pooler.dense", "poolers.text.dense"),
            *bert_names.word_head(words, "mlm_score"),
            bert_names.decoder_bias("mlm_score"),
            *bert_names.both("rank_output", "itm.classifier"),
            *bert_names.both("classifier.0", "answers.inner"),
            *bert_names.both("classifier.1", "answers.norm"),
            *bert_names.both("classifier.3", "answers.outer"),
            Buffer(f"{TEXT}.position_ids"),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, image, first = described.streams["text"], described.streams["image"], described.layers[1]
        heads = [f"Vilt{of}" for name, of in HEADS.items() if name in described.heads]
        return {
            **bert_config.config_of(text, first),
            **block_config(first),
            "architectures": heads[:1] or ["ViltModel"],
            "model_type": "vilt",
            "num_hidden_layers": len(described.layers) - 2,
            "hidden_dropout_prob": image["dropout"],
            "image_size": image_size_of(image),
            "patch_size": image["patch"],
            "num_channels": 3,
            "qkv_bias": True,
            "modality_type_vocab_size": 2,
            "max_image_length": -1,
            **_answers(described),
        }


def _named(config: FamilyConfig) -> Spec:
    """The answers in the order of the classifier's rows, where a configuration names them itself."""
    names = [name for _, name in sorted((config.get("id2label") or {}).items(), key=lambda item: int(item[0]))]
    return {} if all(name == f"LABEL_{number}" for number, name in enumerate(names)) else {"answers": names}


def _answers(described: ModelDescription) -> dict[str, Any]:
    """The configuration of their classifier: the answers in their order."""
    answers = described.heads.get("answers", {}).get("answers") or []
    answers = AnswerVocabulary.load(Path(answers)).answers if isinstance(answers, str) else answers
    if not answers:
        return {}
    numbers = {str(number): answer for number, answer in enumerate(answers)}
    return {"id2label": numbers, "label2id": {answer: int(number) for number, answer in numbers.items()}}

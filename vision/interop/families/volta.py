"""VOLTA's published code (github.com/e-bug/volta; Bugliarello et al., arXiv:2011.15124): ViLBERT, LXMERT, UNITER,
VisualBERT, VL-BERT.

VOLTA numbers sublayers. Each says which modality attends to which (tt, tv, vt, vv: queries to keys, t = text, v =
vision), and whether it has a feed-forward block. In our stacks:

    all four, shared weights   joint(text, image)
    tv and vt                  co(text, image)
    tt, vv                     self(text), self(image)

Its poolers have relu where those of a network have tanh, and a separate width: they belong to the objective itm
(`pooled_size`), for the text and the image, or for the text alone (`fusion_method: text`). Labels of matching are
reversed: 0 = matched. Of the targets of regions ours are 0 (mrc_kl), 3 and 4 (mrc of mrfr's rows, as LXMERT) and
5 (mrfr). Its head of answers shares the pooler of matching, which here are two: a run that has trained both separately
cannot be exported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vision.interop import volta_sublayers, volta_vl_bert
from vision.interop.caption_recipe import REGIONS, captions
from vision.interop.region_streams import IMAGE, answer_head, regions
from workbench.core.errors import unknown
from workbench.interop import bert_config
from workbench.interop.bert_names import PARAMETERS, both, embeddings, word_head
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import ReversedTensor, RowRanges, Rule, SameTensor, Sum
from workbench.recipe.spec import NetworkSpec, Spec

VARIANTS: dict[str, Spec] = {
    "lxmert": {"average": True, "norm_sum": False, "type_vector": False},
    "vilbert": {"norm_parts": False, "type_vector": False},
    "uniter": {},
    "visualbert": {"norm_parts": False},
}
"""`image_embeddings` of the configuration, and the options of our embedding of regions."""
TARGETS = {"0": "mrc_kl", "3": "objects", "4": "attributes", "5": "mrfr", "6": "mrc"}
"""`visual_target_weights` of the configuration, and the objective here."""
HEADS: dict[str, Spec] = {
    "0": {"objective": "vision.mrc_kl"},
    "3": {"objective": "vision.mrc", "of": "mrfr"},
    "4": {"objective": "vision.mrc", "of": "mrfr", "target": "attributes"},
    "5": {"objective": "vision.mrfr", "tied": False},
    "6": {"objective": "vision.mrc"},
}
NORMED = ("0", "6")
"""The targets whose heads are whole ones of ours, with a norm if `image_head_ln` of the configuration is set."""
ANSWERS = "cls.qaPredictions.logit_fc"
POOLERS = {"text": "bert.t_pooler.dense", "image": "bert.v_pooler.dense"}
NAMES = {
    "lxmert": {
        "project": "bert.v_embeddings.image_embeddings",
        "feature_norm": "bert.v_embeddings.ImgLayerNorm",
        "box": "bert.v_embeddings.image_location_embeddings",
        "box_norm": "bert.v_embeddings.LocLayerNorm",
    },
    "vilbert": {
        "project": "bert.v_embeddings.image_embeddings",
        "box": "bert.v_embeddings.image_location_embeddings",
        "norm": "bert.v_embeddings.LayerNorm",
    },
    "uniter": {
        "project": "bert.embeddings.image_embeddings",
        "feature_norm": "bert.embeddings.image_layer_norm",
        "box": "bert.embeddings.image_location_embeddings",
        "box_norm": "bert.embeddings.image_location_layer_norm",
        "norm": "bert.embeddings.v_LayerNorm",
    },
    "visualbert": {"project": "bert.embeddings.projection"},
}


class Volta(CheckpointFamily):
    """VOLTA's ViLBERT, LXMERT, UNITER, VisualBERT and VL-BERT: `text` and `image` streams; heads mlm, itm (with poolers
    of its own), mrc_kl, mrfr (not tied), objects, attributes, mrc and answers."""

    corpus = "image-text-regions"

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return "tt_attn_sublayers" in config

    def network(self, config: FamilyConfig) -> NetworkSpec:
        kind = _kind(config)
        layers = [volta_sublayers.layer(config, sublayer) for sublayer in volta_sublayers.read(config)]
        if kind == volta_vl_bert.KIND:
            return volta_vl_bert.network(config, layers, volta_vl_bert.WORD_MASKED in _targets(config))
        boxes = 0 if kind == "visualbert" else config["num_locs"]
        variant = {"box_size": boxes, "mask_vector": False, **VARIANTS[kind]}
        image = regions(config["v_hidden_size"], config["v_feature_size"], config, **variant)
        text = bert_config.text_stream(config)
        tie = {"image.norm": "text.norm"} if kind == "visualbert" else {}
        return NetworkSpec({"text": text, "image": image}, layers, tie=tie)

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        norm = {"norm": _head_norm(config)}
        regions = {
            name: {**HEADS[target], **(norm if target in NORMED else {})}
            for target, name in TARGETS.items()
            if target in _targets(config)
        }
        pooled = _pooled(config)
        size = config.get("pooler_size")
        itm: Spec = {"objective": "vision.itm", "pool": pooled, "pooled_size": size}
        return {
            "mlm": bert_config.word_head(config, norm_eps=1e-12),
            **({"itm": itm} if pooled else {}),
            **({"answers": {"objective": "vision.answers", "pooled_size": size}} if pooled == ["text"] else {}),
            **regions,
        }

    def task(self, config: FamilyConfig) -> Spec:
        whole = {} if _kind(config) in ("lxmert", "visualbert", "uniter") else {"whole": "first"}
        names = ["mlm", *(["itm"] if _pooled(config) and config.get("pooler_size") else [])]
        return captions(self, config, names, {**REGIONS, **whole})

    def rules(self, config: FamilyConfig) -> list[Rule]:
        kind = _kind(config)
        elements = kind == volta_vl_bert.KIND
        return [
            *(_elements(config) if elements else _embeddings(kind, config)),
            *(
                rule
                for number, sublayer in enumerate(volta_sublayers.read(config), int(elements))
                for rule in volta_sublayers.rules(config, sublayer, f"layers.{number}")
            ),
            *word_head("bert.embeddings.word_embeddings.weight"),
            *_regions(_targets(config), _head_norm(config)),
            *(rule for stream in _pooled(config) for rule in both(POOLERS[stream], f"itm.poolers.{stream}")),
            *([*answer_head(ANSWERS), *both(POOLERS["text"], "answers.pooler")] if _pooled(config) == ["text"] else []),
            *(
                ReversedTensor(f"cls.bi_seq_relationship.{p}", f"itm.classifier.{p}")
                for p in PARAMETERS
                if _pooled(config)
            ),
        ]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        text, image = described.streams["text"], described.streams["image"]
        elements = volta_vl_bert.is_one(described)
        layers = described.layers[1:] if elements else described.layers
        written = volta_sublayers.volta_stack(described._replace(layers=layers))
        own = volta_vl_bert.config(described) if elements else {"num_locs": image["box_size"], **_variant(image)}
        widths = {"v_hidden_size": image["hidden_size"], "v_feature_size": image["feature_size"]}
        return {
            **bert_config.config_of(text, {**layers[0], **written.text}),
            **written.config,
            **widths,
            **own,
            **_written_heads(described.heads, elements and described.layers[0]["masked_element"]),
        }


def _elements(config: FamilyConfig) -> list[Rule]:
    return volta_vl_bert.rules(config, volta_vl_bert.WORD_MASKED in _targets(config))


def _embeddings(kind: str, config: FamilyConfig) -> list[Rule]:
    """The names of the two streams' embeddings."""
    names = NAMES[kind].items()
    regions = [rule for ours, theirs in names for rule in both(theirs, f"{IMAGE}.{ours}")]
    return [*embeddings("bert.embeddings"), *regions, *_types(kind, config)]


def _variant(image: Spec) -> dict[str, str]:
    """The name of an embedding of regions."""
    return {"image_embeddings": next((k for k, v in VARIANTS.items() if _said(image, v, k)), "uniter")}


def _targets(config: FamilyConfig) -> list[str]:
    """The numbers of the predicted targets of regions; by default all of ours."""
    return [str(number) for number in config.get("visual_target_weights", TARGETS)]


def _pooled(config: FamilyConfig) -> list[str]:
    """The streams whose pooled outputs are multiplied for matching."""
    return {"mul": ["text", "image"], "text": ["text"]}.get(config.get("fusion_method", "mul"), [])


def _head_norm(config: FamilyConfig) -> bool:
    """Whether the heads of regions have a norm; VL-BERT's do not."""
    return bool(config.get("image_head_ln", True))


def _regions(targets: list[str], norm: bool) -> list[Rule]:
    """The heads of regions, which have the first map and norm in common."""
    theirs = "cls.imagePredictions"
    bodies = [name for target, name in TARGETS.items() if target in targets and target in ("0", "5", "6")]
    outputs = [("mrc_kl", "0"), ("objects", "3"), ("attributes", "4"), ("mrc", "6")]
    regression = f"{theirs}.decoder_dict.5"
    tied = [SameTensor(f"{regression}.weight", "mrfr.output.weight"), SameTensor(f"{regression}.bias", "mrfr.bias")]
    return [
        *(rule for ours in bodies for rule in both(f"{theirs}.transform.dense", f"{ours}.dense")),
        *(r for ours in bodies if norm for r in both(f"{theirs}.transform.LayerNorm", f"{ours}.norm")),
        *(r for ours, n in outputs if n in targets for r in both(f"{theirs}.decoder_dict.{n}", f"{ours}.output")),
        *(tied if "5" in targets else []),
    ]


def _written_heads(heads: dict[str, Spec], word_masked: bool) -> dict[str, Any]:
    """The options of the heads, and of a vector in the place of a hidden region's word."""
    targets = [n for n, name in TARGETS.items() if name in heads or (word_masked and n == volta_vl_bert.WORD_MASKED)]
    norm = all(heads[name]["norm"] for name in (TARGETS[n] for n in NORMED) if name in heads)
    found: dict[str, Any] = {"visual_target_weights": dict.fromkeys(targets, 1.0), "image_head_ln": norm}
    if "itm" not in heads:
        return {**found, "fusion_method": "none"}
    streams, size = heads["itm"]["pool"], heads["itm"]["pooled_size"]
    fusion = "text" if streams == ["text"] else "mul"
    return {**found, "fusion_method": fusion, "pooler_size": size, "v_pooler_size": size}


def _kind(config: FamilyConfig) -> str:
    kind = config["image_embeddings"]
    known = [*VARIANTS, volta_vl_bert.KIND]
    if kind not in known:
        raise unknown("VOLTA image embedding", kind, known)
    return str(kind)


def _said(image: Spec, variant: Spec, kind: str) -> bool:
    """Whether our options of an embedding are those of a variant."""
    plain = {"average": False, "norm_sum": True, "type_vector": True, "norm_parts": True}
    return all(image[key] == value for key, value in {**plain, **variant}.items()) and (
        (kind == "visualbert") == (image["box_size"] == 0)
    )


def _types(kind: str, config: FamilyConfig) -> list[Rule]:
    """The vector that is added to every region, a row of a table."""
    types, positions = config.get("type_vocab_size", 2), config["max_position_embeddings"]
    vector = f"{IMAGE}.type_vector"
    if kind == "uniter":
        return [RowRanges("bert.embeddings.image_token_type_embeddings.weight", ((vector, 1),), 2)]
    if kind == "visualbert":
        tables = (("token_type_embeddings_visual", 1, types), ("position_embeddings_visual", 0, positions))
        return [Sum(tuple((f"bert.embeddings.{name}.weight", row, rows) for name, row, rows in tables), vector)]
    return []

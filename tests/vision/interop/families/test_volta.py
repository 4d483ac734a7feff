"""VOLTA's numbered sublayers."""

from __future__ import annotations

from tests.contracts.cases import FamilyCase

CONTROLLED = tuple(f"volta/ctrl_{name}" for name in ("uniter", "visualbert", "lxmert", "vilbert"))
ORIGINAL = ("volta/original_lxmert", "volta/original_vilbert")
BASE = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "v_hidden_size": 16,
    "v_feature_size": 10,
    "v_num_attention_heads": 2,
    "v_intermediate_size": 24,
    "num_locs": 5,
    "sublayer2attn_hidden_size": {},
    "sublayer2num_attention_heads": {},
}
TWO_STREAMS = {
    "tt_attn_sublayers": [0, 2, 5],
    "tv_attn_sublayers": [4],
    "vt_attn_sublayers": [4],
    "vv_attn_sublayers": [0, 5],
    "t_ff_sublayers": [1, 3, 6],
    "v_ff_sublayers": [1, 6],
}
JOINT = {f"{direction}_attn_sublayers": [0, 2] for direction in ("tt", "tv", "vt", "vv")}
SHARED = {name: [0, 1, 2, 3] for name in ("shared_sublayers", "single_ln_sublayers")}
FEED_FORWARD = {"t_ff_sublayers": [1, 3], "v_ff_sublayers": [1, 3]}
SUMMED = {f"bert.embeddings.{name}_embeddings_visual.weight": slice(0, 0) for name in ("token_type", "position")}
CASES = {
    "lxmert": FamilyCase(
        config={**BASE, **TWO_STREAMS, "shared_sublayers": [4], "image_embeddings": "lxmert"},
        golden=(*CONTROLLED, *ORIGINAL),
        rows={"bert.embeddings.image_token_type_embeddings.weight": 1, **SUMMED},
    ),
    "vilbert": FamilyCase(
        config={
            **BASE,
            **TWO_STREAMS,
            "shared_sublayers": [],
            "image_embeddings": "vilbert",
            "v_hidden_size": 20,
            "sublayer2attn_hidden_size": {"4": 20},
        }
    ),
    "uniter": FamilyCase(config={**BASE, **JOINT, **SHARED, **FEED_FORWARD, "image_embeddings": "uniter"}),
    "visualbert": FamilyCase(config={**BASE, **JOINT, **SHARED, **FEED_FORWARD, "image_embeddings": "visualbert"}),
    "vl-bert": FamilyCase(
        config={
            **BASE,
            **JOINT,
            **SHARED,
            **FEED_FORWARD,
            "image_embeddings": "vl-bert",
            "add_global_imgfeat": "last",
            "v_coordinate_embeddings_dim": 2,
            "visual_target_weights": {"6": 1.0},
            "type_vocab_size": 3,
            "image_head_ln": False,
        },
        golden=("volta/original_vl-bert", "volta/ctrl_vl-bert"),
    ),
}

"""The original parameter names of ERNIE-THU's and K-BERT's releases, for networks of the core's layers and kg's.

`convert(state, ERNIE)` and `convert(state, KBERT)` (`workbench.interop.names`) give a state dict under the names of a
network with a `text` stream (and an `entity` stream); names that begin with an objective's are its head's.
"""

from __future__ import annotations

from torch import Tensor

from workbench.interop.bert import BODY, HEADS
from workbench.interop.names import Fuse, Rename, Rule, State, convert

PARAMETERS = ("weight", "bias")
_ERNIE = "bert.encoder.layer.{i}"
_KBERT = "encoder.transformer.{i}"

ENTITY: list[Rule] = [
    rule
    for p in PARAMETERS
    for rule in (
        Fuse(
            tuple(f"{_ERNIE}.attention.self_ent.{n}.{p}" for n in ("query", "key", "value")),
            f"layers.{{i}}.entity_attention.attention.qkv.{p}",
        ),
        Rename(f"{_ERNIE}.attention.output_ent.dense.{p}", f"layers.{{i}}.entity_attention.attention.output.{p}"),
        Rename(f"{_ERNIE}.attention.output_ent.LayerNorm.{p}", f"layers.{{i}}.entity_attention.residual.norm.{p}"),
        Rename(f"{_ERNIE}.intermediate.dense_ent.{p}", f"layers.{{i}}.entity_inner.{p}"),
        Rename(f"{_ERNIE}.output.dense_ent.{p}", f"layers.{{i}}.entity_outer.{p}"),
        Rename(f"{_ERNIE}.output.LayerNorm_ent.{p}", f"layers.{{i}}.entity_residual.norm.{p}"),
        Rename(f"cls.predictions_ent.transform.dense.{p}", f"dea.dense.{p}"),
        Rename(f"cls.predictions_ent.transform.LayerNorm.{p}", f"dea.norm.{p}"),
    )
]
ERNIE: list[Rule] = [*BODY, *HEADS, *ENTITY]

KBERT: list[Rule] = [
    Rename("embedding.word_embedding.weight", "embeddings.text.token.weight"),
    Rename("embedding.position_embedding.weight", "embeddings.text.position.weight"),
    Rename("embedding.segment_embedding.weight", "embeddings.text.token_type.weight"),
    Rename("embedding.layer_norm.gamma", "embeddings.text.norm.weight"),
    Rename("embedding.layer_norm.beta", "embeddings.text.norm.bias"),
    *(
        rule
        for p in PARAMETERS
        for rule in (
            Fuse(
                tuple(f"{_KBERT}.self_attn.linear_layers.{n}.{p}" for n in range(3)),
                f"layers.{{i}}.attention.attention.qkv.{p}",
            ),
            Rename(f"{_KBERT}.self_attn.final_linear.{p}", f"layers.{{i}}.attention.attention.output.{p}"),
            Rename(f"{_KBERT}.feed_forward.linear_1.{p}", f"layers.{{i}}.feed_forward.network.inner.{p}"),
            Rename(f"{_KBERT}.feed_forward.linear_2.{p}", f"layers.{{i}}.feed_forward.network.outer.{p}"),
        )
    ),
    *(
        Rename(f"{_KBERT}.layer_norm_{n}.{theirs}", f"layers.{{i}}.{block}.residual.norm.{p}")
        for n, block in ((1, "attention"), (2, "feed_forward"))
        for theirs, p in (("gamma", "weight"), ("beta", "bias"))
    ),
]


def from_ernie(state: State) -> tuple[dict[str, Tensor], list[str]]:
    """A state dict of thunlp/ERNIE under our names, and its names that have no place here.

    `network.load_state_dict` takes what begins with embeddings, layers or poolers; `mlm.`, `nsp.` and `dea.` are the
    heads'. The MLM decoder is the token table, so its copy is left out.
    """
    return convert({n: t for n, t in state.items() if n != "cls.predictions.decoder.weight"}, ERNIE)


def from_kbert(state: State) -> tuple[dict[str, Tensor], list[str]]:
    """A state dict of K-BERT's release under our names, and its names that have no place here.

    Its segments are 1 and 2, with 0 for padding; ours are 0 and 1, so the padding's row of the table is left out.
    """
    converted, left = convert(state, KBERT)
    segments = "embeddings.text.token_type.weight"
    if segments in converted:
        converted[segments] = converted[segments][1:]
    return converted, left

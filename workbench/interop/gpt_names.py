"""The names of the modules of a block in GPT's published code, which GPT-2 has too: a table of rules.

Linear layers are stored as [in, out]; query, key and value are one.
"""

from __future__ import annotations

from workbench.interop.bert_names import both
from workbench.interop.rules import Buffer, Rule, SameTensor, TransposedTensor

LINEAR = {
    "attn.c_attn": "attention.attention.qkv",
    "attn.c_proj": "attention.attention.output",
    "mlp.c_fc": "feed_forward.network.inner",
    "mlp.c_proj": "feed_forward.network.outer",
}
NORMS = {"ln_1": "attention.residual.norm", "ln_2": "feed_forward.residual.norm"}


def blocks(count: int) -> list[Rule]:
    """The rules of a number of blocks, from the first one on."""
    rules: list[Rule] = []
    for i in range(count):
        theirs, ours = f"transformer.h.{i}", f"layers.{i}"
        for one, other in LINEAR.items():
            rules.append(TransposedTensor(f"{theirs}.{one}.weight", f"{ours}.{other}.weight"))
            rules.append(SameTensor(f"{theirs}.{one}.bias", f"{ours}.{other}.bias"))
        for one, other in NORMS.items():
            rules += both(f"{theirs}.{one}", f"{ours}.{other}")
        rules += [Buffer(f"{theirs}.attn.bias"), Buffer(f"{theirs}.attn.masked_bias")]
    return rules

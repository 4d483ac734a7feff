"""Which parameters are not decayed: by the role that they play, not by their shape alone.

Weight decay pulls the weights of a linear map to zero, which a later norm or the next map makes up for. What is an
offset or an entry of a table has no such freedom: an entity that no batch names would fade away. So there is none on

    vectors and scalars (parameters of fewer than two dimensions),
    norms, and whatever is called `bias` or ends in `_bias`, of any shape,
    tables (`nn.Embedding`, `nn.EmbeddingBag`),
    what a module names in `no_weight_decay() -> set of its parameters' names`: prompts, class tokens, position tables.

The last is how the models of timm say it, so that a backbone's own exceptions hold too.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

TABLES = (nn.Embedding, nn.EmbeddingBag)
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase)
METHOD = "no_weight_decay"


def undecayed(root: nn.Module) -> set[nn.Parameter]:
    """The parameters of a module, and of the modules in it, that get no weight decay."""
    found: set[nn.Parameter] = set()
    for module in root.modules():
        exempt = isinstance(module, TABLES + NORMS)
        for name, parameter in module.named_parameters(recurse=False):
            if exempt or parameter.ndim < 2 or name == "bias" or name.endswith("_bias"):
                found.add(parameter)
        if hasattr(module, METHOD):
            own = dict(module.named_parameters())
            found.update(own[name] for name in getattr(module, METHOD)() if name in own)  # timm names absent ones too
    return found

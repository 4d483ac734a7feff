"""Pretraining workbench: text, knowledge and vision-language Transformers in one loop.

The names below are the Python API (`workbench.api`, docs/python.md). Each is imported when it is used, so that the
command line starts without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench.core.shipped import find_package_files, version

if TYPE_CHECKING:
    from workbench.api import create_model as create_model
    from workbench.api import link as link
    from workbench.api import list_recipes as list_recipes
    from workbench.api import load as load
    from workbench.api import load_recipe as load_recipe
    from workbench.api import open_corpus as open_corpus
    from workbench.api import open_run as open_run
    from workbench.api import prepare as prepare
    from workbench.api import prepare_image_text as prepare_image_text
    from workbench.api import prepare_text as prepare_text
    from workbench.api import prepare_triples as prepare_triples
    from workbench.api import pretrain as pretrain
    from workbench.api import verify_resume as verify_resume
    from workbench.core.errors import WorkbenchError as WorkbenchError
    from workbench.evaluation_api import compare as compare
    from workbench.evaluation_api import evaluate as evaluate
    from workbench.evaluation_api import finetune as finetune
    from workbench.evaluation_api import write_report as write_report
    from workbench.model_api import Model as Model
    from workbench.training.callbacks import STOP as STOP
    from workbench.training.callbacks import Callback as Callback

    __version__: str

PLACES = {
    **dict.fromkeys(
        ("list_recipes", "load_recipe", "create_model", "load", "open_corpus", "open_run"), "workbench.api"
    ),
    **dict.fromkeys(("prepare", "prepare_text", "prepare_image_text", "prepare_triples", "link"), "workbench.api"),
    **dict.fromkeys(("pretrain", "verify_resume"), "workbench.api"),
    **dict.fromkeys(("finetune", "evaluate", "compare", "write_report"), "workbench.evaluation_api"),
    **dict.fromkeys(("Callback", "STOP"), "workbench.training.callbacks"),
    "Model": "workbench.model_api",
    "WorkbenchError": "workbench.core.errors",
}
"""The modules of the API's names."""
__all__ = [*PLACES, "__version__"]

find_package_files()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version()
    if name not in PLACES:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""The files of a checkpoint: a configuration and weights, in their usual forms. No code in them is ever executed.

    folder with config.json and model.safetensors (Hugging Face), also in shards with model.safetensors.index.json
    folder with one *.json that is a configuration and one file of weights (.safetensors, .bin, .pt, .pth)
    a file of weights; the configuration is the one next to it, or is inferred from the tensors' shapes

Files of torch are pickles: they are read by torch's own reader of tensors, which refuses everything else.

Also the requirements on weights (finite floating-point numbers), and the names of checkpoint families.
"""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from workbench.components.building import short_names
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import check_writable, real_path, sha256_of
from workbench.core.files.text_files import parse_json
from workbench.core.packages import WEIGHTS as IN_PACKAGES
from workbench.core.packages import located
from workbench.corpora.manifest import FILE_NAME
from workbench.interop.scaled_tensors import scaled
from workbench.recipe.foreign_names import is_hub_name
from workbench.runs.names import RECIPE, TOKENIZER, is_run
from workbench.runs.output_places import check_apart
from workbench.text.tokenizer_layouts import ROLES_FILE, SETTINGS_FILE

if TYPE_CHECKING:  # a place is checked without torch, which takes seconds to import
    import torch
    from torch import Tensor

KIND = "family"
"""The component kind of a checkpoint family."""
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PREFERRED = (WEIGHTS, INDEX, "weights.safetensors", "pytorch_model.bin")
TORCH = (".bin", ".pt", ".pth")
WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys of the weights in checkpoints of training programs, in addition to an optimizer's."""
IMAGES = "preprocessor_config.json"
SENTENCES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
"""The files of sentence-transformers: the modules, the network's and the model's options."""
ONNX = "model.onnx"
"""The network for onnxruntime."""
QUANTISED = "quantization_config"
"""The key of a configuration with the way in which weights are rounded."""
EXPORTED = (CONFIG, WEIGHTS, TOKENIZER, SETTINGS_FILE, ROLES_FILE, IMAGES, *SENTENCES, ONNX)
"""The files that an export writes."""
CARD = "README.md"
MADE_FROM = re.compile(r"recipe `(?P<recipe>[^`]*)`, run `(?P<run>[^`]*)`")
"""The words of a card that name the run."""
FOREIGN = (".json", ".safetensors", *TORCH, ".txt", ".model")
"""Suffixes of the files of a checkpoint: one of another name means that another program wrote the folder."""
NO_CONFIG = ("index.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json")

_EVERY = "Every family writes model.safetensors, which torch, transformers and safetensors read: --as bert."
FORMS = {
    "onnx": "ONNX is a form of a family: --as bert --also onnx.",
    "int8": "int8 is a form of a family: --as bert --int8.",
    "sentencetransformers": "sentence-transformers is a form of a family: --as bert --also sentence-transformers.",
    **dict.fromkeys(("pytorch", "torch", "safetensors", "hf", "huggingface", "transformers"), _EVERY),
}
"""Advice for names of file formats and libraries, which are no families."""
Also = Literal["sentence-transformers", "onnx"]
"""The libraries for which an export adds files to its own."""


class CheckpointFiles(NamedTuple):
    """The files of a checkpoint: a configuration, where there is one, and files of weights."""

    config: Path | None
    weights: list[Path]


def find_files(place: Path) -> CheckpointFiles | None:
    """The files at a place; None where there are no weights.

    Raises:
        WorkbenchError: there are several files of weights or configurations, and none has the usual name.
    """
    folder = place if place.is_dir() else place.parent
    configs = [f for f in _endings(folder, (".json",)) if not f.name.endswith(NO_CONFIG) and "config" in f.name]
    config = folder / CONFIG if folder / CONFIG in configs else _only(configs, "configurations", folder)
    if place.is_file():
        return CheckpointFiles(config, [place])
    if not place.is_dir():
        return None
    named = next((place / name for name in PREFERRED if (place / name).is_file()), None)
    found = named or _only(_endings(place, (".safetensors", *TORCH)), "files of weights", folder)
    if found is None:
        return None
    return CheckpointFiles(config, _shards(found) if found.name == INDEX else [found])


def other_weights(read: Sequence[Path]) -> list[str]:
    """The names of files of weights next to those that are read: most often the same weights in another format."""
    return [file.name for file in _endings(read[0].parent, (".safetensors", *TORCH)) if file not in read]


def check_place(place: Path) -> None:
    """Check by the names of files that a command's RUN is a run or a checkpoint.

    Raises:
        WorkbenchError: there is neither, a package is not installed, or a checkpoint has several files of weights.
    """
    if not is_run(place) and find_files(located(place, IN_PACKAGES)) is None:
        raise no_place(place)


def no_place(place: Path) -> WorkbenchError:
    """The error about a place that is neither a run nor a checkpoint."""
    missing = not located(place, IN_PACKAGES).exists()
    if missing and is_hub_name(str(place)):
        owner = "" if "/" in str(place) else "OWNER/"
        return WorkbenchError(
            f"there is no run or checkpoint {place}. It may be a model of the Hugging Face hub, and nothing is "
            f"downloaded for a bare name. hub:{owner}{place} reads it from the hub; a folder with its files works too"
        )
    return WorkbenchError(
        f"{place} is not a run: {'there is no such folder' if missing else f'it has no {RECIPE}'}; nor is it a "
        "checkpoint, which has a configuration and weights (Hugging Face's config.json and model.safetensors)"
    )


def check_checkpoint_folder(folder: Path, source: Path) -> None:
    """Check the folder of a checkpoint (config, weights, tokenizer) before it is written. An earlier export may be
    replaced.

    Args:
        source: the run or checkpoint that is exported.

    Raises:
        WorkbenchError: --output is a run or within one's own files, a file of a checkpoint cannot be written there, or
            the folder is the source, a checkpoint that no export wrote, or the export of another run.
    """
    try:
        check_apart(folder)
        if (folder / FILE_NAME).is_file():
            raise WorkbenchError(f"{folder} is a corpus; choose another folder")
        own = located(source, IN_PACKAGES)
        if real_path(folder) in (real_path(own), real_path(own).parent if own.is_file() else None):
            raise WorkbenchError(f"{folder} is the checkpoint that the model was loaded from; choose another folder")
        foreign = [file.name for file in _endings(folder, FOREIGN) if file.name not in EXPORTED]
        if not foreign and "transformers_version" in _config_text(folder):
            foreign = [CONFIG]
        if foreign:
            raise WorkbenchError(
                f"{folder} has files that no export wrote ({', '.join(foreign[:3])}); choose an empty folder, or that "
                "of an earlier export"
            )
        _check_same_run(folder, source)
        for name in EXPORTED:
            check_writable(folder / name)
    except WorkbenchError as error:
        raise type(error)(f"--output: {error}") from error


def _check_same_run(folder: Path, source: Path) -> None:
    """
    Raises:
        WorkbenchError: the folder's card names another run.
    """
    card = folder / CARD
    found = MADE_FROM.search(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    if found is None:
        return
    from workbench.runs.data_record import run_id  # torch takes seconds

    if found["run"] != (run_id(source) if is_run(source) else None):
        raise WorkbenchError(
            f"{folder} has the export of another run, of the recipe {found['recipe']!r}; choose another folder, or "
            "remove this one"
        )


def _config_text(folder: Path) -> str:
    """The text of the configuration there; empty without one. transformers writes its version into it."""
    file = folder / CONFIG
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def checksum_of(files: Iterable[Path]) -> str:
    """SHA-256 of files together; of a single one its own."""
    sums = [sha256_of(file) for file in files]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def read_config(file: Path | None) -> dict[str, Any]:
    """The configuration; empty where there is none.

    Raises:
        WorkbenchError: it is damaged.
    """
    if file is None:
        return {}
    try:
        config = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WorkbenchError(f"{file} is not valid JSON: {error}; fetch the folder again") from error
    if not isinstance(config, dict):
        raise WorkbenchError(f"{file} holds a {type(config).__name__}, not an object; fetch the folder again")
    return config


def read_tensors(files: Iterable[Path]) -> dict[str, Tensor]:
    """All tensors of files of weights, on the CPU; int8 matrices with their scales multiplied in.

    Raises:
        WorkbenchError: a file is damaged, or has values that are not tensors.
    """
    from workbench.runs.weights import read_weights

    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors |= _read_torch(file) if file.suffix in TORCH else read_weights(file)
    if tensors and all(name.startswith("module.") for name in tensors):  # saved from DistributedDataParallel
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    return scaled(tensors)


def read_names(files: Iterable[Path]) -> list[str]:
    """The names of the tensors in files of weights."""
    from workbench.runs.weights import weight_names

    files = list(files)
    if any(file.suffix in TORCH for file in files):
        return list(read_tensors(files))
    return [name for file in files for name in weight_names(file)]


def _read_torch(file: Path) -> dict[str, Tensor]:
    import torch
    from torch import Tensor

    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise WorkbenchError(
            f"{file} cannot be read as tensors alone ({reason}). It is damaged, or it would run code: ask its author "
            "to save the weights as safetensors"
        ) from error
    for key in WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    found = {str(name): t for name, t in state.items() if isinstance(t, Tensor)} if isinstance(state, Mapping) else {}
    if not found:
        raise WorkbenchError(f"{file} holds no tensors by name, but a {type(state).__name__}; allowed: a state dict")
    return found


def _shards(index: Path) -> list[Path]:
    """The files in an index, each once."""
    listed = read_config(index).get("weight_map")
    names = list(dict.fromkeys(listed.values())) if isinstance(listed, dict) else []
    wrong = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    missing = [name for name in names if name not in wrong and not (index.parent / name).is_file()]
    if not names or wrong or missing:
        what = f"names no file next to it: {wrong[0]!r}" if wrong else f"lacks {', '.join(missing) or 'weight_map'}"
        raise WorkbenchError(f"{index} {what}; fetch the folder again")
    return [index.parent / name for name in names]


def _endings(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix in endings and f.is_file()) if folder.is_dir() else []


def _only(found: list[Path], what: str, folder: Path) -> Path | None:
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:6])
        raise WorkbenchError(f"{folder} has several {what}: {names}; name the file itself, in a folder of its own")
    return found[0] if found else None


def check_numbers(tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Check that weights are finite floating-point numbers.

    Args:
        names: of the weights among the tensors; others (a mask, a count of steps) may be anything.

    Raises:
        WorkbenchError: a weight is of another kind (quantised, complex, sparse), or holds NaN or infinity.
    """
    import torch

    floating = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in floating or tensor.layout != torch.strided:
            what = tensor.dtype if tensor.layout == torch.strided else tensor.layout
            raise WorkbenchError(
                f"the tensor {name} is {_short(what)}; weights are {', '.join(map(_short, floating))}: save it as one "
                "of these (quantised weights with their scales multiplied in)"
            )
        wrong = int(tensor.numel() - torch.isfinite(tensor).sum())
        if wrong:
            raise WorkbenchError(
                f"the tensor {name} has NaN or infinity in {wrong:,} of {tensor.numel():,} places; fetch the file "
                "again, or use weights from before the training failed"
            )


def _short(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")


def family_of(name: str) -> str:
    """The short name of a family given by the name of its recipe (`ernie-thu`, `gpt-2`), with or without the package;
    an import path is returned unchanged.

    Raises:
        WorkbenchError: there is no such family, or there are several.
    """
    known = short_names(KIND)
    if ":" in name or name in known:
        return name
    found = [each for each in known if _plain(name) in (_plain(each), _plain(each.rpartition(".")[2]))]
    if not found:
        advice = FORMS.get(_plain(name), f"'workbench components {KIND}' lists them.")
        raise unknown(KIND, name, [*known, "package.module:Class"], advice=advice)
    if len(found) > 1:
        raise WorkbenchError(f"{name} may be the families {', '.join(found)}; name one of them")
    return found[0]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

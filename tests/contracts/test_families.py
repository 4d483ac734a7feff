"""Contracts of checkpoint families: descriptions of networks and names hold both ways, to the last
bit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.contracts.case_finder import case_of, cases_of, over
from tests.interop.worlds import WORDS, tokenizer
from tests.loaded_runs import encode_texts
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import make_family, read_checkpoint_folder, recognised
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.family import CheckpointFamily, FamilyConfig
from workbench.interop.network_description import DROPOUT, differences, model_description
from workbench.interop.rules import Buffer, Copy, to_ours, to_theirs
from workbench.interop.run_or_checkpoint import load
from workbench.models.network import Network
from workbench.pretraining.task import visibilities_in


def made(name: str, **changes: Any) -> tuple[CheckpointFamily, FamilyConfig, Network]:
    """The family, its small configuration (with changes), and the network of that with random weights."""
    checkpoint_family = make_family(cases_of("family")[name].part)
    stated = case_of("family", name).config
    text = stated.get("text_config")  # where it has several encoders' configurations
    changed = {**stated, **changes} if text is None else {**stated, "text_config": {**text, **changes}}
    config = FamilyConfig(changed)
    spec = checkpoint_family.network(config)
    torch.manual_seed(0)
    network = Network(spec)
    for ours, other in spec.tie.items():
        parent, _, module = (ours if ours.startswith("layers.") else f"embeddings.{ours}").rpartition(".")
        setattr(network.get_submodule(parent), module, network.embeddings.get_submodule(other))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    return checkpoint_family, config, network


@over("family")
def test_a_network_is_written_and_read_as_it_was(name: str, tmp_path: Path) -> None:
    checkpoint_family, config, network = made(name)
    written = exported_weights(
        cases_of("family")[name].part, network, checkpoint_family.network(config), torch.nn.ModuleDict(), {}
    )
    assert written.left == []
    again, unused = to_ours(written.tensors, checkpoint_family.rules(FamilyConfig(written.config)))
    assert unused == []
    own = network.state_dict()
    assert all(torch.equal(tensor, own[ours]) for ours, tensor in again.items())
    reached = {tensor.data_ptr() for ours, tensor in own.items() if ours in again}
    assert {tensor.data_ptr() for tensor in own.values()} == reached


@over("family")
def test_a_configuration_says_its_network(name: str) -> None:
    checkpoint_family, config, _ = made(name)
    one = model_description(checkpoint_family.network(config), checkpoint_family.heads(config))
    again = FamilyConfig(checkpoint_family.config(one))
    assert (
        differences(
            one,
            model_description(checkpoint_family.network(again), checkpoint_family.heads(again)),
            checkpoint_family.free - DROPOUT,
        )
        == []
    )


@over("family")
def test_a_folder_is_of_one_family(name: str) -> None:
    checkpoint_family, config, network = made(name)
    names = list(to_theirs(network.state_dict(), checkpoint_family.rules(config)).tensors)
    assert recognised(config, names, "here") == cases_of("family")[name].part
    reported = [
        refusal(checkpoint_family, {other: value for other, value in config.items() if other != key}) for key in config
    ]
    assert all("the configuration has no" in message for message in reported if message)
    assert any(reported)


def refusal(checkpoint_family: CheckpointFamily, config: dict[str, Any]) -> str:
    """What is said of a configuration; nothing of a whole one."""
    try:
        checkpoint_family.network(FamilyConfig(config))
    except WorkbenchError as error:
        return str(error)
    return ""


@over("family")
def test_a_network_of_another_kind_is_refused_with_what_differs(name: str) -> None:
    checkpoint_family, config, network = made(name)
    spec = checkpoint_family.network(config)
    spec.layers = [*spec.layers, {"layer": "tap", "name": "here"}]
    with pytest.raises(WorkbenchError, match=f"the family {cases_of('family')[name].part}|no form in the family"):
        exported_weights(cases_of("family")[name].part, network, spec, torch.nn.ModuleDict(), {})


@pytest.mark.parametrize(
    ("name", "folder"), [(name, folder) for name in cases_of("family") for folder in case_of("family", name).golden]
)
def test_the_original_weights_come_back(name: str, folder: str, shared: Path) -> None:
    """Network and heads, under their original names and with their original values."""
    part, case = cases_of("family")[name]
    checkpoint_family, place = make_family(part), shared / "golden" / folder
    plain: dict[str, Any] = json.loads((place / "config.json").read_text())
    config = FamilyConfig({**case.config, **plain["config"]} if "model_class" in plain else plain)
    original = {checkpoint_family.spelt(n): t for n, t in load_file(place / "weights.safetensors").items()}
    config = checkpoint_family.completed(config, original)
    ours, unused = to_ours(original, checkpoint_family.rules(config))
    assert [n for n in unused if not n.startswith(case.unused)] == []
    theirs, left = to_theirs(ours, checkpoint_family.rules(config))
    assert left == []
    buffers, copies = (
        {r.source for r in checkpoint_family.rules(config) if isinstance(r, kind)} for kind in (Buffer, Copy)
    )
    assert theirs.keys() | copies == (original.keys() - {*unused} - buffers) | copies
    theirs = {name: tensor for name, tensor in theirs.items() if name in original or name not in copies}
    check_equal(theirs, original, case.rows)
    heads = {ours_name.partition(".")[0] for ours_name in ours} - {"embeddings", "layers", "poolers"}
    assert heads <= checkpoint_family.heads(config).keys()
    if "model_class" not in plain:
        files = find_files(place)
        assert files is not None
        assert read_checkpoint_folder(files).family == part


@pytest.mark.parametrize("name", [n for n in cases_of("family") if "text" in case_of("family", n).excused])
def test_what_reads_no_text_is_refused_as_a_run(name: str, tmp_path: Path) -> None:
    checkpoint_family, config, network = made(name)
    written = exported_weights(
        cases_of("family")[name].part, network, checkpoint_family.network(config), torch.nn.ModuleDict(), {}
    )
    write_checkpoint_folder(tmp_path, written)
    tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(WorkbenchError, match="reads no text"):
        load(tmp_path)


@over("family")
def test_a_layer_that_the_configuration_does_not_state_is_refused(name: str, tmp_path: Path) -> None:
    """Its weights belong to the network, which would compute something else without them."""
    checkpoint_family, config, network = made(name)
    part = cases_of("family")[name].part
    written = exported_weights(part, network, checkpoint_family.network(config), torch.nn.ModuleDict(), {})
    heads = {"mine.head.weight": torch.ones(2), "pooler.mine.weight": torch.ones(2)}
    write_checkpoint_folder(tmp_path / "heads", written._replace(tensors={**written.tensors, **heads}))
    files = find_files(tmp_path / "heads")
    assert files is not None
    if part == "vision.timm_vit":  # it leaves nothing at all, and its layers are as many as there are weights of
        return
    assert {*read_checkpoint_folder(files, part).unused} <= {
        *heads,
        *(f"{checkpoint_family.prefix}{head}" for head in heads),
    }
    first = re.compile(r"(?<!\d)0\.")  # `layer.0.`, or `block0.`
    numbered = [tensor for tensor in written.tensors if first.search(tensor)]
    more = {first.sub("99.", tensor, count=1): written.tensors[tensor] for tensor in numbered}
    assert more
    write_checkpoint_folder(tmp_path / "more", written._replace(tensors={**written.tensors, **more}))
    files = find_files(tmp_path / "more")
    assert files is not None
    with pytest.raises(WorkbenchError, match=r"tensors belong to the network.*99\..*correct the configuration"):
        read_checkpoint_folder(files, part)


@over("family", "text")
def test_a_folder_is_opened_as_a_run(name: str, tmp_path: Path) -> None:
    """With its special tokens and as many positions as it has; what its text can be asked for is given."""
    checkpoint_family, config, network = made(name)
    part = cases_of("family")[name].part
    write_checkpoint_folder(
        tmp_path, exported_weights(part, network, checkpoint_family.network(config), torch.nn.ModuleDict(), {})
    )
    tokenizer(tmp_path / "tokenizer.json")
    loaded = load(tmp_path)
    vectors = encode_texts(loaded, [" ".join(WORDS), WORDS[2]])
    assert vectors.shape == (2, network.sizes["text"])
    assert vectors.isfinite().all()
    assert visibilities_in(loaded.recipe.tasks["text"].sequence) == [checkpoint_family.visibility(config)]


def check_equal(theirs: dict[str, Tensor], original: dict[str, Tensor], rows: dict[str, int | slice]) -> None:
    for name, tensor in theirs.items():
        at = rows.get(name, slice(None))
        assert torch.equal(tensor[at], original[name][at]), name

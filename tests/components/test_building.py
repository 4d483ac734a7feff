"""Components are found by short name or import path, and their options checked against the signature."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_type_hints

import pytest

from workbench.components.building import build, checked, find, options_of
from workbench.components.component_listing import component_entries
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Size, SomeShare
from workbench.models.blocks import LayerOptions
from workbench.models.layers.self import SelfLayer
from workbench.sequences.builder import Builder, PairOptions, TextOptions
from workbench.sequences.builders.document import DocumentBuilder, DocumentOptions
from workbench.sequences.builders.sentence_pair import SentencePairBuilder

SPEC = {"layer": "self", "stream": "text", "num_heads": 2}


def test_a_short_name_with_options_and_given_things() -> None:
    layer = build("layer", SPEC, "model.layers[0]", sizes={"text": 8}, unrelated=3)
    assert isinstance(layer, SelfLayer)


@pytest.mark.parametrize(("kind", "name"), [("layer", "self"), ("objective", "kg.supersense"), ("objective", "mlm")])
def test_a_class_is_called_as_recipes_call_it(kind: str, name: str) -> None:
    assert KINDS[kind].name(find(kind, name)) == name
    assert KINDS["layer"].name(SimpleNamespace) == "types:SimpleNamespace"


def test_an_import_path() -> None:
    layer = build("layer", {**SPEC, "layer": "workbench.models.layers.self:SelfLayer"}, sizes={"text": 8})
    assert isinstance(layer, SelfLayer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": "sefl"}, r"unknown layer 'sefl'.*Did you mean 'self'"),
        ({"heads": 2}, r"unknown option 'heads' in model: layer 'self'.*'num_heads'"),
        ({"num_heads": "two"}, r"num_heads = 'two' is of type str; allowed: a whole number from 1, at most 1,024"),
        ({"layer": "nowhere:Layer"}, r"there is no module 'nowhere'"),
        ({"layer": "workbench.models.layers.self:Selv"}, r"unknown layer 'Selv'.*SelfLayer"),
    ],
)
def test_wrong_components_get_one_clear_message(change: dict, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        build("layer", {**SPEC, **change}, "model", sizes={"text": 8})


def test_a_missing_option_is_named() -> None:
    with pytest.raises(WorkbenchError, match="missing num_heads"):
        build("layer", {"layer": "self", "stream": "text"}, sizes={"text": 8})


def test_a_component_next_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_test.py").write_text(
        "from torch import nn\n\nclass Scale(nn.Module):\n    def __init__(self, by: float = 1.0):\n"
        "        super().__init__()\n        self.by = by\n\n"
        "    def forward(self, hidden, context):\n        return hidden\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert build("layer", {"layer": "mine_for_test:Scale", "by": 2}).by == 2


def test_a_component_whose_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more_for_test.py").write_text("import a_package_nobody_has\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(WorkbenchError, match="needs the package 'a_package_nobody_has'"):
        find("layer", "needs_more_for_test:Layer")


LOOSE = """
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from somewhere import Anything


class Loose(nn.Module):
    def __init__(self, typed: float = 1.0, untyped=1.0, any: Any = None, other: Anything = None) -> None:
        super().__init__()

    def forward(self, hidden, context):
        return hidden
"""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("option", ["typed", "untyped", "any", "any.inner", "any.inner[1]", "other"])
def test_no_option_of_a_component_is_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: float
) -> None:
    (tmp_path / "loose_for_test.py").write_text(LOOSE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    given = {"any.inner": {"inner": value}, "any.inner[1]": {"inner": [0, value]}}.get(option, value)
    with pytest.raises(WorkbenchError) as refusal:
        build("layer", {"layer": "loose_for_test:Loose", option.partition(".")[0]: given})
    kind = "a number" if option == "typed" else "a finite number"
    assert str(refusal.value) == f"layer 'loose_for_test:Loose': {option} = {value}; allowed: {kind}"


def test_an_annotation_that_cannot_be_looked_up_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loose_for_test.py").write_text(LOOSE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(WorkbenchError, match="typed = 'much' is of type str; allowed: a number"):
        build("layer", {"layer": "loose_for_test:Loose", "typed": "much"})


ASKING = """
from workbench.sequences.protocols import Masking

class Asking(Masking):
    def __init__(self, tokenizer, seed, of="nobody"):
        self.asked = tokenizer, seed, of

    def __call__(self, sequences, stream, rate, numbers):
        return []
"""


def test_components_of_components_receive_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asking_masking.py").write_text(ASKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    masking = {"masking": "asking_masking:Asking", "seed": 5}
    vocabulary = SimpleNamespace(id=lambda role: 1, ordinary_ids=[2])
    objective = build("objective", {"objective": "mlm", "masking": masking}, tokenizer=vocabulary, seed=3)
    assert objective.masking.asked == (vocabulary, 5, "nobody")
    with pytest.raises(WorkbenchError, match="missing tokenizer"):
        build("masking", masking)


def test_components_are_listed_with_their_options() -> None:
    listed = {entry.name: entry for entry in component_entries("layer")}
    assert "attends to itself" in listed["self"].line or "attention" in listed["self"].line
    assert listed["kg.aggregator"].given == ["sizes"]
    heads = next(option for option in listed["self"].options if option.name == "num_heads")
    assert heads.allowed.startswith("a whole number from 1")


def test_options_that_components_share_are_listed_with_their_defaults() -> None:
    """Those of `**options: Annotated[Any, SomeDataclass]` are in no signature."""
    listed = {f"{kind} {entry.name}": entry for kind in ("layer", "builder") for entry in component_entries(kind)}
    layer, packed = ({o.name: o.default for o in listed[name].options} for name in ("layer self", "builder packed"))
    assert (layer["norm_eps"], layer["rotary"], layer["num_heads"]) == ("1e-12", "null", "")
    assert (packed["begin"], packed["visibility"], packed["across"]) == ("cls", "bidirectional", "false")
    meanings = {option.name: option.meaning for option in listed["layer self"].options}
    assert meanings["norm_eps"] == "epsilon of the norms."  # of the dataclass
    assert meanings["stream"]  # of the layer itself


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_that_need_not_be_stated_is_listed_with_its_default(kind: str) -> None:
    for entry in component_entries(kind):
        stated = inspect.signature(find(kind, entry.name)).parameters
        needed = [option.name for option in entry.options if not option.default]
        assert all("." in name or name in stated for name in needed), entry.name  # or of a group that is left out


def test_each_option_of_a_group_has_a_line() -> None:
    options = {
        entry.name: {option.name: option for option in entry.options} for entry in component_entries("objective")
    }
    mlm, clm = options["mlm"], options["clm"]
    assert (mlm["head.transform"].default, clm["head.transform"].default) == ("as below", "null")
    assert (mlm["head.bias"].default, clm["head.bias"].default) == ("true", "false")
    assert mlm["head.transform.norm_eps"].default == "1e-12"
    assert mlm["replace.per"].allowed == "token, word, group"
    assert mlm["soft.follower"].default == ""


@dataclass(frozen=True)
class Several:
    """Options that components share."""

    size: Size
    rate: SomeShare = 0.5
    kind: Literal["one", "other"] = "one"


class Taking:
    """Takes them, but for the kind, which is its own."""

    def __init__(self, kind: Literal["third"] = "third", **options: Annotated[Any, Several]) -> None:
        self.made = Several(**options)


def test_options_of_a_dataclass_are_checked_listed_and_taken_alike() -> None:
    names, types, defaults, open_ended = options_of(Taking)
    assert (names, defaults, open_ended) == (["kind", "size", "rate"], {"kind": "third", "rate": 0.5}, False)
    assert types == {"kind": Literal["third"], "size": Size, "rate": SomeShare}
    assert Taking(**checked(Taking, {"size": 3}, "here", {"rate": 0.25})).made == Several(3, 0.25)
    with pytest.raises(WorkbenchError, match="here: missing size; options: kind, size, rate"):
        checked(Taking, {}, "here")
    with pytest.raises(WorkbenchError, match="here: rate = 2; allowed: a number above 0, at most 1"):
        checked(Taking, {"size": 3, "rate": 2}, "here")
    with pytest.raises(WorkbenchError, match=r"unknown option 'rates' in here\. Did you mean 'rate'"):
        checked(Taking, {"size": 3, "rates": 1}, "here")


@pytest.mark.parametrize(
    "name", ["self", "joint", "co", "cross", "two_stream", "kg.aggregator", "kg.entity_aware", "kg.kar"]
)
def test_every_layer_takes_the_options_that_are_declared_once(name: str) -> None:
    taken = options_of(find("layer", name))
    own = {"num_heads", "activation"} if name == "kg.aggregator" else {"num_heads"}  # it has heads and forms of its own
    hints = get_type_hints(LayerOptions, include_extras=True)
    for field in dataclasses.fields(LayerOptions):
        assert field.name in taken.names
        if field.name not in own:
            assert (taken.types[field.name], taken.defaults[field.name]) == (hints[field.name], field.default)


@pytest.mark.parametrize(
    ("options", "builder"),
    [(TextOptions, Builder), (PairOptions, SentencePairBuilder), (DocumentOptions, DocumentBuilder)],
)
def test_options_of_builders_are_by_default_what_the_builder_takes(options: type, builder: type) -> None:
    defaults = options_of(builder).defaults
    assert {field.name: defaults[field.name] for field in dataclasses.fields(options)} == vars(options())

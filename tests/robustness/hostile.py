"""What somebody could put into a recipe or a run to have it run, read or fill something: lists for the tests."""

from __future__ import annotations

PARTS = [
    "subprocess:run",
    "subprocess:Popen",
    "os:system",
    "builtins:exec",
    "functools:partial",
    "shutil:rmtree",
    "this:d",
    "antigravity:webbrowser",
    "idlelib.idle:idlelib",
    "__main__:main",
    "workbench.__main__:main",
    "torch:load",
    "torch.hub:load",
    "torch:nn",
    "torch.nn:Module",
    "torch.nn:Linear",
    "torch.utils.cpp_extension:BuildExtension",
    "numpy:float64",
    "numpy:load",
    "typer:Typer",
    "yaml:unsafe_load",
    "workbench.training.run:pretrain",
    "workbench.parts:PROTOCOLS",
    "workbench.objective:Objective",
    "kg.store:GraphStore",
    "..planted:Planted",
    ".planted:Planted",
    "planted.:Planted",
    "planted:Planted.__init__",
    "planted/../planted:Planted",
    "planted:",
    ":Planted",
    "planted:__class__",
    "nowhere.at.all:Planted",
]
"""Names that stand for no part of any kind."""

INTERPOLATIONS = [
    "${oc.env:SECRET}",
    "${oc.env:SECRET,none}",
    "a ${oc.env:SECRET} b",
    "${oc.decode:${oc.env:SECRET}}",
    "${oc.create:{a: 1}}",
    "${oc.dict.values:train}",
    "${oc.select:train.lr}",
    "${${vars.corpus}}",
    "${vars.${seed}}",
    "\\${oc.env:SECRET}",
]
"""Values of a recipe that read something else than its own keys."""

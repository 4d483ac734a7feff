"""The arithmetic of a run: chosen from recipe and card, set on CUDA alone, restored, and reported where it changes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.short_runs import shorter
from workbench.components.build_context import mark
from workbench.core.errors import RAISED_IN, WorkbenchError
from workbench.models.attention.flex import flex_lacks
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.train_spec import TrainSpec
from workbench.runs.checkpoint import read_state
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.names import METRICS, RECIPE
from workbench.training import verify_resume as verify
from workbench.training.arithmetic import (
    WIDE,
    Arithmetic,
    arithmetic_of,
    autocast_dtype,
    computing,
    refuse_unordered,
)
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
SPEC = TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1)


def settings() -> dict[str, Any]:
    return {
        "matmul": torch.get_float32_matmul_precision(),
        "convolutions": torch.backends.cudnn.allow_tf32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "filled": torch.utils.deterministic.fill_uninitialized_memory,
        "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A CUDA card that is asked only whether it has bfloat16."""
    found = SimpleNamespace(bfloat16=True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: found.bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    return found


@pytest.mark.parametrize(
    ("precision", "bfloat16", "device", "expected"),
    [
        ("auto", True, CUDA, (torch.bfloat16, "high")),
        ("auto", False, CUDA, (torch.float16, "high")),
        ("float32", True, CUDA, (None, "highest")),
        ("float16", True, CUDA, (torch.float16, "high")),
        ("auto", True, CPU, (None, "highest")),
        ("bfloat16", False, CPU, (torch.bfloat16, "high")),
    ],
)
def test_recipe_and_card_decide(
    card: SimpleNamespace, precision: Any, bfloat16: bool, device: torch.device, expected: tuple[Any, str]
) -> None:
    card.bfloat16 = bfloat16
    found = arithmetic_of(replace(SPEC, precision=precision), device)
    assert (found.dtype, found.matmul) == expected
    for asked in ("highest", "high"):
        assert arithmetic_of(replace(SPEC, precision=precision, matmul_precision=asked), device).matmul == asked


@pytest.mark.parametrize(
    ("able", "width", "before", "expected"),
    [
        ({"avx512_bf16": True}, WIDE, None, torch.bfloat16),
        ({"amx_bf16": True}, WIDE, None, torch.bfloat16),
        ({"avx512_bf16": True}, WIDE - 1, None, None),
        ({"avx512_f": True}, WIDE, None, None),
        ({"avx512_f": True}, WIDE, ("cpu", "bfloat16"), torch.bfloat16),
        ({"avx512_bf16": True}, WIDE, ("cpu", "float32"), None),
        ({"avx512_bf16": True}, WIDE, ("cuda", "float16"), torch.bfloat16),
    ],
)
def test_auto_on_a_cpu_follows_its_instructions_the_width_and_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], width: int, before: Any, expected: torch.dtype | None
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    saved = None if before is None else dict(zip(("device", "dtype"), before, strict=True))
    assert arithmetic_of(SPEC, CPU, width, saved).dtype == expected
    assert arithmetic_of(replace(SPEC, precision="float32"), CPU, width, saved).dtype is None


def test_a_run_on_a_cpu_keeps_the_precision_that_auto_chose(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, short = tmp_path / "run", shorter(recipe, max_steps=4)
    monkeypatch.setattr("workbench.training.arithmetic.WIDE", 1)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    pretrain(short, run, until=2)
    assert "bfloat16, as auto has it on this device, weights in float32" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    pretrain(short, run)
    assert "differs from that of the run so far" not in capsys.readouterr().err
    assert read_state(Checkpoints(run).whole().path)["arithmetic"]["dtype"] == "bfloat16"
    assert "precision: auto" in (run / RECIPE).read_text()


def test_autocast_on_a_cpu_computes_in_float32_what_cuda_does() -> None:
    rows, weights = torch.rand(4, 8).bfloat16().requires_grad_(), torch.ones(8)
    autocast_dtype("bfloat16", CPU)
    with torch.autocast("cpu", torch.bfloat16):
        found = [
            F.cosine_similarity(rows, rows),
            F.group_norm(rows, 2),
            F.layer_norm(rows, (8,), weights, weights),
            F.normalize(rows),
            F.rms_norm(rows, (8,)),
            F.softplus(rows),
            rows.cumsum(0),
            rows.exp(),
            rows.log(),
            rows.log_softmax(-1),
            rows.logsumexp(-1),
            rows.pow(2),
            rows.rsqrt(),
            rows.softmax(-1),
            rows.sum(),
            rows.sum(-1),
        ]
        assert [tensor.dtype for tensor in found] == [torch.float32] * len(found)
        assert F.linear(rows, torch.eye(8)).dtype == F.gelu(rows).dtype == torch.bfloat16
    torch.stack([tensor.sum() for tensor in found]).sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()
    assert rows.softmax(-1).dtype == torch.bfloat16  # outside of autocast nothing changes


def test_a_card_without_bfloat16_refuses_it(card: SimpleNamespace) -> None:
    card.bfloat16 = False
    with pytest.raises(WorkbenchError, match=r"bfloat16: Tesla T4 lacks it; use float16 or float32"):
        arithmetic_of(replace(SPEC, precision="bfloat16"), CUDA)


@pytest.mark.parametrize("matmul", ["highest", "high"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_torch_is_set_for_the_run_and_as_before_after_it(
    matmul: str, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = settings()
    now: dict[str, Any] = {}

    def fail() -> None:
        now.update(settings())
        raise KeyError

    with pytest.raises(KeyError), computing(Arithmetic(CUDA, None, matmul, deterministic)):
        fail()
    assert (now["matmul"], now["convolutions"]) == (matmul, matmul == "high")
    assert now["deterministic"] == deterministic
    assert now["workspace"] == (":4096:8" if deterministic else None)
    assert settings() == before
    with computing(Arithmetic(CPU, None, "high", True)):
        assert settings() == before


def test_the_workspace_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with computing(Arithmetic(CUDA, None, deterministic=True)):
        assert settings()["workspace"] == ":16:8"
    assert settings()["workspace"] == ":16:8"


def unordered(operation: str) -> RuntimeError:
    """The error of torch on CUDA."""
    return RuntimeError(
        f"{operation} does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
    )


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1, 2, 2))

    def forward(self) -> dict[str, Tensor]:
        return {"image": F.interpolate(self.weight, size=(3, 3), mode="bicubic")}


def test_the_component_of_an_unordered_operation_is_named() -> None:
    """In the backward it is found in the graph; in the forward the error has it."""
    root = nn.ModuleList([mark(nn.Linear(9, 9), "model.layers[0]: layer 'map'"), mark(Pixels(), "model.image")])

    def forward() -> Tensor:
        rows = root[1]()["image"].flatten()
        return root[0](rows).sum()

    with pytest.raises(
        WorkbenchError, match=r"model\.image: the operation upsample_bicubic2d_backward_out_cuda has no"
    ):
        refuse_unordered(unordered("upsample_bicubic2d_backward_out_cuda"), root, forward)
    error = unordered("cumsum_cuda_kernel")
    error.add_note(f"{RAISED_IN}tasks.text.objectives[1]: objective 'mine'")
    with pytest.raises(
        WorkbenchError, match=r"objective 'mine': the operation cumsum_cuda_kernel.*train.deterministic"
    ):
        refuse_unordered(error, root, forward)
    with pytest.raises(WorkbenchError, match=r"a component: the operation put_"):
        refuse_unordered(unordered("put_"), root, forward)
    refuse_unordered(RuntimeError("boom"), root, forward)


def test_deterministic_and_matmul_precision_are_checked_on_resume(make_recipe: Any, tmp_path: Path) -> None:
    path, run = str(make_recipe()), tmp_path / "run"
    pretrain(load_recipe(path, ["train.max_steps=4", "train.save_every=2"]), run, until=2)
    for changed in ("train.deterministic=true", "train.matmul_precision=highest"):
        with pytest.raises(WorkbenchError, match=changed.partition("=")[0].replace(".", r"\.")):
            pretrain(load_recipe(path, ["train.max_steps=4", "train.save_every=2", changed]), run)


def test_another_arithmetic_of_the_machine_is_reported(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    short = shorter(recipe, max_steps=4)
    pretrain(short, run, until=2)
    half = Arithmetic(CPU, torch.float16)
    monkeypatch.setattr("workbench.training.plan.arithmetic_of", lambda *_: half)
    pretrain(short, run)
    assert "differs from that of the run so far (dtype float32 -> float16)" in capsys.readouterr().err


@pytest.mark.parametrize(("tolerance", "equal"), [(0.0, False), (1e-2, True), (1e-9, False)])
def test_on_a_gpu_runs_are_compared_within_a_tolerance(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerance: float, equal: bool
) -> None:
    def rounded(recipe: Recipe, run: Path, **options: Any) -> Path:
        """As with kernels that add in any order."""
        pretrain(recipe, run, **options)
        if run.name == "interrupted" and options["until"] == 4:
            lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
            lines[-1]["mlm/loss"] *= 1 + 1e-6
            (run / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run

    monkeypatch.setattr(verify, "pretrain", rounded)
    monkeypatch.setattr(Arithmetic, "tolerance", lambda self: tolerance)
    verdict = verify_resume(recipe, tmp_path, steps=4)
    assert (verdict.equal, verdict.tolerance, verdict.close) == (equal, tolerance, int(equal))
    assert verdict.compared == 12
    assert not verdict.weights


def test_only_cuda_without_deterministic_is_given_a_tolerance() -> None:
    assert Arithmetic(CPU, None).tolerance() == 0
    assert Arithmetic(CUDA, torch.bfloat16, deterministic=True).tolerance() == 0
    assert 0 < Arithmetic(CUDA, None).tolerance() < Arithmetic(CUDA, torch.bfloat16).tolerance() < 0.1


def test_flex_leaves_a_relation_that_learns_to_others_where_sums_have_one_order() -> None:
    learns, fixed = nn.Embedding(3, 2), nn.Identity()
    for score_bias in (learns, fixed):
        score_bias.score_mod = lambda queries, keys: None  # type: ignore[assignment]
    request: Any = SimpleNamespace(score_bias=learns, need_weights=False)
    assert flex_lacks(request) is None
    with computing(Arithmetic(CUDA, torch.bfloat16, deterministic=True)):
        assert "Embedding, which learns, in one order" in str(flex_lacks(request))
        assert flex_lacks(SimpleNamespace(score_bias=fixed, need_weights=False)) is None  # type: ignore[arg-type]

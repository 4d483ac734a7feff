"""The arithmetic of a run: number types, TF32, deterministic kernels. Set in one place, restored afterwards.

On a CPU no option of torch is set, because its kernels are exact by default.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from workbench.components.build_context import build_record_of, named
from workbench.core.errors import RAISED_IN, WorkbenchError
from workbench.recipe.train_spec import Precision, TrainSpec
from workbench.training.cpu_autocast import follow_cuda
from workbench.training.nonfinite import dry, tensors_in

logger = logging.getLogger(__name__)
CUBLAS, WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""The environment variable that makes cuBLAS deterministic, and the larger of its two values."""
WIDE = 256
"""The width of the narrowest stream from which auto computes in bfloat16 on a CPU that has instructions for it. A step
of BERT took 0.7 of the time of float32 at 256 and half of it at 512 and 768 (`benchmarks.cpu_precision`)."""
EXACT = {torch.bfloat16: 1e-2, torch.float16: 1e-2, None: 1e-3}
"""The tolerance between two runs whose kernels add in any order, by `Arithmetic.dtype`: relative to a value, or of
1."""


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic on a device.

    Attributes:
        dtype: that of autocast; None is float32.
        matmul: precision of float32 products on CUDA: `highest` (IEEE) or `high` (TF32).
        deterministic: whether CUDA is restricted to kernels that add in one order.
    """

    device: torch.device
    dtype: torch.dtype | None
    matmul: str = "highest"
    deterministic: bool = False

    def state(self) -> dict[str, Any]:
        """The values as plain Python types for a checkpoint; the device by its kind."""
        return {**asdict(self), "device": self.device.type, "dtype": self.precision}

    @property
    def precision(self) -> Precision:
        """The name of the dtype: the value of `train.precision` that asks for it."""
        return cast(Precision, str(self.dtype or torch.float32).removeprefix("torch."))

    def tolerance(self) -> float:
        """The greatest difference between two runs of the same recipe; 0 means bit for bit."""
        return 0.0 if self.deterministic or self.device.type != "cuda" else EXACT[self.dtype]


def arithmetic_of(
    spec: TrainSpec, device: torch.device, width: int = 0, before: Mapping[str, Any] | None = None
) -> Arithmetic:
    """The arithmetic that a recipe asks for, on this device.

    Args:
        width: of the narrowest stream.
        before: the state of the arithmetic in the checkpoint that the run resumes from. On a CPU, auto keeps its dtype,
            whatever this CPU computes: both dtypes work on every CPU.

    Raises:
        WorkbenchError: bfloat16 on a CUDA device that lacks it.
    """
    kept = before is not None and before["device"] == device.type == "cpu" and spec.precision == "auto"
    dtype = autocast_dtype(before["dtype"] if kept and before else spec.precision, device, width=width)
    return Arithmetic(device, dtype, matmul_of(spec.matmul_precision, dtype), spec.deterministic)


def matmul_of(asked: str, dtype: torch.dtype | None) -> str:
    """`highest` or `high`. On auto, TF32 is used where the networks compute in 16 bit: the products that stay in
    float32 then cost no more than the others. With float32 networks, products stay in float32."""
    return asked if asked != "auto" else "highest" if dtype is None else "high"


def autocast_dtype(
    precision: str, device: torch.device, option: str = "train.precision", width: int = 0
) -> torch.dtype | None:
    """The dtype that is asked for or, on auto, the one that a device has fast units for: on CUDA bfloat16, else
    float16; on a CPU bfloat16, else float32. None is float32.

    On a CPU without bfloat16 units autocast is many times slower than float32, and with them it is slower for narrow
    networks, so auto uses it there from `WIDE` on. Autocast of a CPU then follows CUDA's rules (`follow_cuda`).

    Args:
        precision: auto, float32, bfloat16 or float16.
        option: the option that asked for it, for the message.
        width: of the network's narrowest stream.

    Raises:
        WorkbenchError: bfloat16 on a CUDA device that lacks it.
    """
    able = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bfloat16" and not able:
        name = torch.cuda.get_device_name(device)
        raise WorkbenchError(f"{option} = bfloat16: {name} lacks it; use float16 or float32")
    if precision == "auto" and device.type == "cuda":
        return torch.bfloat16 if able else torch.float16
    if precision == "auto" and width >= WIDE and computes_bfloat16():
        precision = "bfloat16"
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision)
    if dtype is not None and device.type == "cpu":
        follow_cuda()
    return dtype


def computes_bfloat16() -> bool:
    """Whether this machine's CPU has instructions for products in bfloat16: AVX-512 BF16 or AMX."""
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


@contextmanager
def computing(arithmetic: Arithmetic) -> Iterator[None]:
    """A block in which torch uses this arithmetic on CUDA; the earlier settings are restored at its end.

    cuBLAS needs its environment variable. It is read whenever torch makes a workspace, which is at the first product.
    """
    if arithmetic.device.type != "cuda":
        yield
        return
    matmul, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    deterministic, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    workspace = os.environ.get(CUBLAS)
    try:
        torch.set_float32_matmul_precision(arithmetic.matmul)
        torch.backends.cudnn.allow_tf32 = arithmetic.matmul == "high"
        if arithmetic.deterministic:
            os.environ.setdefault(CUBLAS, WORKSPACE)
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a launch a tensor
            logger.info(
                "train.deterministic: the kernels add in one order. They are slower where rows are gathered, added by "
                "index or attended to in the backward; attention with a trained score bias uses the padded kernel"
            )
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        if workspace is None:
            os.environ.pop(CUBLAS, None)


def warn_change(before: Mapping[str, Any] | None, now: Arithmetic) -> None:
    """Warn where a run continues with another arithmetic than its checkpoint's, for example on another machine."""
    changed = {key: value for key, value in now.state().items() if (before or now.state()).get(key) != value}
    if changed and before is not None:
        differences = ", ".join(f"{key} {before.get(key)} -> {value}" for key, value in changed.items())
        logger.warning(
            "the arithmetic of this machine differs from that of the run so far (%s). The run continues, but its "
            "numbers differ from those of an uninterrupted run. Set train.precision and train.matmul_precision to fix "
            "the arithmetic",
            differences,
        )


NO_FORM = "does not have a deterministic implementation"


def refuse_unordered(error: RuntimeError, root: nn.Module, forward: Callable[[], Tensor]) -> None:
    """Raise a named error for an operation that `train.deterministic` forbids, with the component that uses it.

    Args:
        forward: the pass in which the error occurred, or in whose backward it occurred.

    Raises:
        WorkbenchError: the error is of that kind.
    """
    operation, forbidden, _ = str(error).partition(NO_FORM)
    if not forbidden:
        return
    notes = (note.removeprefix(RAISED_IN) for note in getattr(error, "__notes__", ()) if note.startswith(RAISED_IN))
    where = next(notes, "") or _asks_for(operation, root, forward)
    raise WorkbenchError(
        f"{where or 'a component'}: the operation {operation.strip()} has no kernel on CUDA that adds in one "
        "order, and train.deterministic = true allows no other. Use another component or option there, or remove "
        "train.deterministic: `workbench verify-resume` then compares within a tolerance"
    ) from error


def _asks_for(operation: str, root: nn.Module, forward: Callable[[], Tensor]) -> str:
    """The innermost named component in whose outputs' graph an operation of the backward is; "" where none is.

    The kernel `upsample_bicubic2d_backward_out_cuda` is that of the node `UpsampleBicubic2DBackward0`.
    """
    kernel = operation.replace("_", "").strip().lower()
    found: list[str] = []

    def look(module: nn.Module, _: Any, output: Any) -> None:
        if not found and any(_in_graph(kernel, tensor.grad_fn) for tensor in tensors_in(output)):
            found.append(named(module))

    with ExitStack() as stack, dry(root):
        for module in root.modules():
            if build_record_of(module) is not None:
                stack.callback(module.register_forward_hook(look).remove)
        forward()
    return next(iter(found), "")


def _in_graph(kernel: str, node: Node | None) -> bool:
    """Whether a kernel is that of a node from which this one was built."""
    waiting, seen = [node], set[Any]()
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        if kernel.startswith(each.name().lower().rstrip("0123456789")):
            return True
        seen.add(each)
        waiting += [before for before, _ in each.next_functions]
    return False

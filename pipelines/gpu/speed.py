"""Base-size throughput next to the class of Hugging Face or open_clip of the same size, on the same batches.

Ours is the product's own step, with its wait for the losses; the peer's is a plain loop: forward, backward, clipping,
fused AdamW. Both compute in bfloat16 autocast (or what the recipe's precision is on this card) and copy each batch from
pinned memory. The peer gets the same tokens, corruption and labels, padded to the longest sequence. Only real tokens
count.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.gpu.record import CheckRecord, Setting
from pipelines.gpu.stepping import stepping
from pipelines.gpu.steps import (
    SYSTEMS,
    Stepper,
    emptied,
    first_step,
    recipe_of,
    rows_of,
    samples_of,
    timed,
)
from vision.images.transforms import NORMALISATIONS, standardise
from workbench.core.errors import WorkbenchError
from workbench.sequences.batch import MicroBatch
from workbench.training.metrics import measured_peak

SLOWER = 0.95
"""The share of the peer's speed below which a check fails."""
Loss = Callable[[dict[str, Tensor]], Tensor]


def run(setting: Setting, record: CheckRecord) -> None:
    """Each system: ours, then its peer."""
    record.note("documents of random words, log-normal with median 90 and mean 160; random photographs; see corpora.py")
    peaks: dict[torch.dtype | None, float] = {}
    for number, name in enumerate(record.in_time(list(SYSTEMS))):
        with record.guarded(name):
            seconds = max(record.left, 1.0) / (len(SYSTEMS) - number) / 4  # half is for making and compiling
            _measure(name, setting, record, seconds, peaks)
        emptied()


def _measure(
    name: str, setting: Setting, record: CheckRecord, seconds: float, peaks: dict[torch.dtype | None, float]
) -> None:
    emptied()
    step = Stepper(recipe_of(name, setting), setting.world)
    dtype, micros = step.updater.micro_pass.autocast, step.micros
    if dtype not in peaks:
        peaks[dtype] = measured_peak(setting.device, dtype)
        record.note(f"measured peak of a matrix product in {dtype or torch.float32}: {peaks[dtype] / 1e12:.3g} TFLOP/s")
    unit = SYSTEMS[name].unit
    count = statistics.mean((rows_of if unit == "tokens" else samples_of)(micro) for micro in micros)
    compiling = first_step(step)
    ours = {**_timed(step, seconds, count), "first_step_s": compiling}
    ours["mfu"] = step.flops() * ours["per_s"] / count / peaks[dtype]
    del step
    emptied()
    record.note(
        f"{name}, micro-batch of {micros[0].views['main'].size} sequences, {count:,.0f} {unit} a step: "
        f"{ours['per_s']:,.0f} {unit}/s, {ours['ms']:.1f} ms a step, MFU {ours['mfu']:.0%}, "
        f"peak {ours['peak_gib']:.1f} GiB ({ours['reserved_gib']:.1f} reserved, {ours['retries']} retries), "
        f"first step {compiling:.1f} s"
    )
    record.check(f"{name}, MFU", 0 < ours["mfu"] < 1, f"{ours['mfu']:.1%}", "above 0 and below 100 %", **ours)
    theirs = _peer(name, setting, micros, dtype, seconds, count)
    ratio = ours["per_s"] / theirs["per_s"]
    padded_share = 1 - count / theirs["places"] if unit == "tokens" else 0.0
    record.note(
        f"{name}, peer {theirs['class']}: {theirs['per_s']:,.0f} {unit}/s, {theirs['ms']:.1f} ms a step, "
        f"peak {theirs['peak_gib']:.1f} GiB, first step {theirs['first_step_s']:.1f} s, padding {padded_share:.0%}"
    )
    line = f"{ratio:.2f} of the peer's {unit}/s, {ours['peak_gib'] / max(theirs['peak_gib'], 1e-9):.2f} of its memory"
    record.check(
        f"{name}, next to {theirs['class']}", ratio >= SLOWER, line, f">= {SLOWER:g}", ratio=ratio, peer=theirs
    )


def _timed(step: Callable[[], object], seconds: float, count: float) -> dict[str, Any]:
    """Milliseconds, units per second, the peaks of memory, and how often the allocator found none and tried again."""
    torch.cuda.reset_peak_memory_stats()
    before = _retries()
    median = statistics.median(timed(step, seconds))
    peaks = {"peak_gib": torch.cuda.max_memory_allocated(), "reserved_gib": torch.cuda.max_memory_reserved()}
    gib = {name: peak / 2**30 for name, peak in peaks.items()}
    return {"ms": 1e3 * median, "per_s": count / median, **gib, "retries": _retries() - before}


def _retries() -> int:
    return int(torch.cuda.memory_stats().get("num_alloc_retries", 0))


def _peer(
    name: str, setting: Setting, micros: list[MicroBatch], dtype: torch.dtype | None, seconds: float, count: float
) -> dict[str, Any]:
    """The peer's numbers; `places`: of a step, padding included."""
    make = _open_clip if name == "clip" else _hugging_face
    label, model, inputs, loss = make(name, setting, micros)
    device = setting.device
    model = model.to(device).train()
    places = statistics.mean(each["input_ids"].numel() for each in inputs)
    waiting = [{key: value.pin_memory() for key, value in each.items()} for each in inputs]

    def forward(number: int) -> Tensor:
        given = {key: value.to(device, non_blocking=True) for key, value in waiting[number].items()}
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            return loss(given)

    numbered, number = stepping(model, forward), 0

    def step() -> None:
        nonlocal number
        numbered(number % len(waiting))
        number += 1

    first = first_step(step)
    return {"class": label, "places": places, "first_step_s": first, **_timed(step, seconds, count)}


def _hugging_face(
    name: str, setting: Setting, micros: list[MicroBatch]
) -> tuple[str, nn.Module, list[dict[str, Tensor]], Loss]:
    """The class next to which `benchmarks.text_steps` measures the system, of the size that its configuration has."""
    try:
        from pipelines.gpu.text_peers import PEERS
    except ImportError as error:
        raise WorkbenchError(f"{error}; pip install transformers to have {name} measured next to it") from error
    peer = PEERS[name]
    if setting.size == "base":
        peer = replace(peer, options={})
    model = peer.made(SYSTEMS[name].vocabulary)

    def loss(given: dict[str, Tensor]) -> Tensor:
        found: Tensor = model(**given).loss
        return found

    return f"transformers.{peer.model}", model, [peer.inputs(micro) for micro in micros], loss


def _open_clip(
    name: str, setting: Setting, micros: list[MicroBatch]
) -> tuple[str, nn.Module, list[dict[str, Tensor]], Loss]:
    """ViT-B/32 with its text encoder, quick GELU, as OpenAI's."""
    try:
        models, losses = (importlib.import_module(f"open_clip.{module}") for module in ("model", "loss"))
    except ImportError as error:
        raise WorkbenchError(f"{error}; pip install open_clip_torch to have {name} measured next to it") from error
    base = setting.size == "base"
    width, layers, size, patch = (768, 12, 224, 32) if base else (128, 2, 64, 16)
    words, context = (512, 77) if base else (128, 77)
    vision = models.CLIPVisionCfg(layers=layers, width=width, patch_size=patch, image_size=size)
    text = models.CLIPTextCfg(
        context_length=context, vocab_size=SYSTEMS[name].vocabulary, width=words, heads=words // 64, layers=layers
    )
    model, contrast = models.CLIP(words, vision, text, quick_gelu=True), losses.ClipLoss()
    mean, std = (torch.tensor(values, device=setting.device) for values in NORMALISATIONS["clip"])

    def loss(given: dict[str, Tensor]) -> Tensor:
        found: Tensor = contrast(*model(standardise(given["images"], mean, std), given["input_ids"]))
        return found

    return "open_clip.CLIP", model, [_pairs(micro, size, patch, context) for micro in micros], loss


def _pairs(micro: MicroBatch, size: int, patch: int, context: int) -> dict[str, Tensor]:
    """Images and texts of a micro-batch as open_clip reads them: the last token of a text is its largest number."""
    batch = micro.views["main"]
    grid, rows = size // patch, batch.streams["image"].fields["patches"]
    cells = rows.unflatten(0, (batch.size, -1))[:, 1:]  # without the class's row
    cells = cells.reshape(batch.size, grid, grid, 3, patch, patch)
    images = cells.permute(0, 3, 1, 4, 2, 5).reshape(batch.size, 3, size, size)
    ids = batch.streams["text"].fields["input_ids"].clone()
    ends = torch.tensor(batch.streams["text"].starts[1:]) - 1
    ids[ends] = SYSTEMS["clip"].vocabulary - 1
    texts = nn.utils.rnn.pad_sequence(list(ids.split(batch.streams["text"].lengths)), batch_first=True)
    texts = nn.functional.pad(texts, (0, context - texts.shape[1]))
    return {"images": images.contiguous(), "input_ids": texts}

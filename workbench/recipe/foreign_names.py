"""Option names of other libraries, and the recipe keys that correspond to them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

EPOCHS = "train.max_steps; an epoch is the samples (workbench show CORPUS) / train.global_batch_size"
KEYS = {
    "adam_beta1": "train.optimizer.betas=[0.9,0.999]",
    "adam_beta2": "train.optimizer.betas=[0.9,0.999]",
    "adam_epsilon": "train.optimizer.eps=1e-8",
    "amp": "train.precision=bfloat16, or float16; auto picks what the hardware supports",
    "batch_size": "train.global_batch_size (per step, over all GPUs) and train.micro_batch_size (on one GPU at once)",
    "betas": "train.optimizer.betas=[0.9,0.999]",
    "bf16": "train.precision=bfloat16 (auto picks it where the hardware supports it)",
    "dataloader_num_workers": "train.num_workers=4",
    "device": "not set: a CUDA device is taken where there is one; CUDA_VISIBLE_DEVICES chooses it, or none",
    "early_stopping_patience": "'train.stop={metric: mlm/loss, patience: 3}'",
    "ema_decay": "train.ema.decay=0.999",
    "epochs": EPOCHS,
    "eval_steps": "train.evaluate_every=1000 (with tasks.NAME.held_out=[CORPUS])",
    "fp16": "train.precision=float16 (auto picks bfloat16 where the hardware supports it)",
    "grad_clip": "train.clip_norm=1.0",
    "gradient_accumulation_steps": "not set: it is train.global_batch_size / (train.micro_batch_size x processes)",
    "gradient_checkpointing": "train.activation_checkpointing=true",
    "learning_rate": "train.lr=1e-4",
    "logging_steps": "train.log_every=10",
    "load_best_model_at_end": "train.best=mlm/loss, the held-out metric that selects the best weights",
    "lr": "train.lr=1e-4",
    "lr_scheduler_type": "train.lr_schedule=linear, cosine, ... (workbench components lr_schedule)",
    "max_grad_norm": "train.clip_norm=1.0",
    "max_length": "tasks.NAME.sequence.max_length=128",
    "max_seq_length": "tasks.NAME.sequence.max_length=128",
    "max_steps": "train.max_steps=1000",
    "mlm_probability": "tasks.NAME.objectives[N].rate=0.15 of the objective mlm",
    "model_name_or_path": "workbench pretrain FOLDER, which continues from the weights in FOLDER",
    "num_epochs": EPOCHS,
    "num_train_epochs": EPOCHS,
    "num_workers": "train.num_workers=4",
    "optim": "train.optimizer=adamw, ... (workbench components optimizer)",
    "optimizer": "train.optimizer=adamw, ... (workbench components optimizer)",
    "output_dir": "--output runs/NAME",
    "per_device_train_batch_size": "train.micro_batch_size (train.global_batch_size is per step, over all GPUs)",
    "precision": "train.precision=bfloat16, float16, float32 or auto",
    "report_to": "train.trackers=[tensorboard,wandb] (workbench components tracker)",
    "resume_from_checkpoint": "not set: the same command resumes the run",
    "save_steps": "train.save_every=1000",
    "save_total_limit": "train.keep_last=2",
    "torch_compile": "train.compile=true",
    "train_file": "workbench prepare text FILE --output corpora/text, then tasks.NAME.corpora=[corpora/text]",
    "warmup_ratio": "train.lr_schedule.warmup_steps=0.1, a share of train.max_steps",
    "warmup_steps": "train.lr_schedule.warmup_steps=100",
    "weight_decay": "train.optimizer.weight_decay=0.01",
}
"""The corresponding key, by the last word of a key that recipes don't have."""
OPTIONS = {
    "learning_rate": "--lr",
    "num_epochs": "--epochs",
    "num_train_epochs": "--epochs",
    "output_dir": "--output",
    "per_device_train_batch_size": "--batch-size",
    "train_batch_size": "--batch-size",
}
"""The corresponding option of a command, where the command has it."""
_HUB = re.compile(r"(?i)^[\w-]+/[\w.-]+$|uncased|cased|chinese|multilingual|patch\d+|[-_](base|small|large|mini|v\d)\b")


def key_hint(key: str) -> str:
    """The key here that corresponds to a key of another library; empty if there is none."""
    meant = KEYS.get(key.rpartition(".")[2].strip("-").replace("-", "_"))
    return f"The corresponding setting is {meant}." if meant else ""


def is_hub_name(name: str) -> bool:
    """Whether a name that is no file may be that of a model of the Hugging Face hub."""
    owner, slash, _ = name.partition("/")
    return bool(_HUB.search(name)) and not name.startswith((".", "/")) and not (slash and Path(owner).exists())


def model_hint(name: str, recipes: Iterable[str]) -> str:
    """Advice for a model name of the Hugging Face hub; empty if it is not one."""
    if not is_hub_name(name):
        return ""
    last = re.sub(r"[^a-z0-9]", "", name.rpartition("/")[2].lower())
    plain = {re.sub(r"[^a-z0-9]", "", recipe): recipe for recipe in recipes}
    close = max((each for each in plain if last.startswith(each)), key=len, default=None)
    recipe = f" The architecture with fresh weights is the recipe {plain[close]!r}." if close else ""
    return (
        "It may be a model of the Hugging Face hub; nothing is downloaded for a bare name. To continue from its "
        "weights, name it as hub:ORG/NAME, or name the folder with its config.json and model.safetensors: "
        f"workbench pretrain FOLDER.{recipe}"
    )

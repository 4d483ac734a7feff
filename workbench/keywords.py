"""Keywords of functions that take the options of a command, for editors. `make pages` writes this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

Place = str | PathLike[str]
Places = Place | Sequence[Place]
Assignments = Mapping[str, Any] | Sequence[str]


class PrepareText(TypedDict, total=False):
    address: str | None
    dedupe: bool
    engine: Literal["local", "ray"]
    format: str | None
    language: str | None
    licence: str | None
    limit: int | None
    log_dropped: bool
    max_repeated: float | None
    min_length: int
    min_letters: float | None
    normalise: Literal["NFC", "NFKC", "none"]
    numbered_keys: bool
    on_error: Literal["stop", "skip"]
    option: Assignments
    own_split: str | Sequence[str]
    part: str | None
    shard_bytes: int
    shard_size: int
    split: Assignments
    trust: bool
    url: str | None
    workers: int


class PrepareImageText(TypedDict, total=False):
    address: str | None
    connections: int
    dedupe: bool
    engine: Literal["local", "ray"]
    fetch: bool
    format: str | None
    images: Places
    licence: str | None
    limit: int | None
    log_dropped: bool
    max_bytes: int
    max_pixels: int
    min_side: int
    numbered_keys: bool
    on_error: Literal["stop", "skip"]
    option: Assignments
    own_split: str | Sequence[str]
    part: str | None
    private_hosts: bool
    quality: int
    resize: int | None
    retries: int
    shard_bytes: int
    shard_size: int
    split: Assignments
    timeout: float
    trust: bool
    url: str | None
    workers: int


class PrepareTriples(TypedDict, total=False):
    address: str | None
    engine: Literal["local", "ray"]
    entities: Places
    format: str | None
    graph: bool
    inductive: bool
    licence: str | None
    limit: int | None
    log_dropped: bool
    namespace: str | None
    on_error: Literal["stop", "skip"]
    option: Assignments
    own_split: str | Sequence[str]
    part: str | None
    relations: Places
    shard_bytes: int
    shard_size: int
    split: Assignments
    strict: bool
    trust: bool
    type_names: Places
    types: Places
    url: str | None
    without: Places
    workers: int


class Link(TypedDict, total=False):
    address: str | None
    alongside: bool
    anchors: Place | None
    candidates: int
    case: Literal["ignore", "exact"]
    common: bool
    context: bool
    engine: Literal["local", "ray"]
    graph: Place | None
    inside: str | None
    keep: bool
    knowledge_base: Place | None
    limit: int | None
    linker: Place | None
    log_dropped: bool
    min_length: int
    min_score: float
    names: Place | None
    part: str | None
    priors: Place | None
    ranked_by: Place | None
    shard_bytes: int
    shard_size: int
    signs: bool
    skip: Place | None
    supervise: bool
    words: Place
    workers: int


class Decode(TypedDict, total=False):
    beams: int
    early_stopping: Literal["false", "true", "never"]
    length_penalty: float
    max_new_tokens: int
    sample: bool
    seed: int
    temperature: float
    top_k: int | None
    top_p: float


class Finetune(TypedDict, total=False):
    adapters: Places | None
    answers: Place | None
    answers_of: Places | None
    batch_size: int
    control: str | None
    epochs: float
    groups: Place | None
    hard_negatives: Literal["margin", "choice"] | None
    head: str
    held_out: Place | None
    label: str | None
    longest: int
    lr: float
    marker: str | None
    max_length: int | None
    max_target_length: int | None
    media: str | Sequence[str] | None
    min_count: int | None
    negative: str | None
    network: str | None
    objective: Literal["itc", "itm"] | None
    overrides: Assignments | None
    pattern: str
    read: Any
    scheme: Literal["BIO", "IOBES", "BILOU", "BMES", "spans"] | None
    source: str | None
    stream: str | None
    stride: int | None
    tail: str
    target: str | None
    teacher: Places | None
    types: str | None
    without: str | Sequence[str] | None
    word: Assignments


class Evaluate(TypedDict, total=False):
    alongside: Places | None
    analogies: Place | None
    batch_size: int
    beams: int
    candidates: Any
    captions: int | None
    contexts: int
    control: Any
    decay: float
    document_prefix: str | None
    documents: Place
    draws: int
    early_stopping: Literal["false", "true", "never"]
    field: Literal["tags", "marks", "dependencies"] | None
    first_stage: Place | None
    folds: int
    frequencies: Place | None
    gold: Literal["all", "inventory"]
    gqa_predictions: Place | None
    graph: Place
    groups: Place | None
    judgments: Place
    known: Places | None
    label: str | None
    labels: Place
    length_penalty: float
    limit: int | None
    lowercase: bool
    macro: Literal["open_type", "ernie"]
    max_new_tokens: int | None
    memory: Place | None
    memory_share: float
    memory_temperature: float
    min_score: float
    negatives: Place
    neighbours: int
    network: str | None
    normalisation: Literal["sum", "mean"]
    objective: str | None
    other: Place
    other_network: str | None
    overrides: Assignments | None
    pairs: int
    pool: str | None
    precision: Literal["float32", "bfloat16", "float16"]
    predictions: Place | None
    probe: bool
    query_prefix: str | None
    rank: Place | None
    rate: float
    rerank: int
    rule: Literal["positive", "positive_or_top"]
    same: Place | None
    scheme: Literal["BIO", "IOBES", "BILOU", "BMES", "spans"] | None
    seed: int
    signs: bool
    spans: int
    stream: str | None
    stride: int | None
    template: str | Sequence[str] | None
    ties: Literal["realistic", "pessimistic"]
    tokenize: Literal["13a", "intl", "zh", "char", "none"]
    train: Place | None
    trigger: int
    unigrams: Place | None
    unseen: bool
    valid: Place
    valid_negatives: Place
    variant: Literal["official_2015", "early_script", "always_normalise", "single_answer", "anls"] | None
    wordnet: Place | None
    words: int


class Predict(TypedDict, total=False):
    among: Place
    batch_size: int
    beams: int
    best: int
    choice: str | Sequence[str] | None
    control: str | None
    early_stopping: Literal["false", "true", "never"]
    graph: Place
    head: str | None
    labels: Place
    length_penalty: float
    limit: int | None
    linker: Place | None
    max_new_tokens: int | None
    mention: str | None
    network: str | None
    objective: str | None
    on_error: Literal["stop", "skip"]
    precision: Literal["float32", "bfloat16", "float16"]
    question: str | None
    rule: Literal["positive", "positive_or_top"]
    second: str | None
    tail: str | None
    template: str | Sequence[str] | None

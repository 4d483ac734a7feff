"""The check that an owner of a GPU runs: each of its questions can be answered with no, and the page says so."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from benchmarks import gpu_ranks
from pipelines.gpu import check as gpu_check
from pipelines.gpu import corpora, kernels, loader, page, recipes, resume, speed, waits
from pipelines.gpu.record import CheckPart, CheckRecord, Setting, chosen, run_parts
from vision.sequences.image_processors.patches import cut
from workbench.cli.app import app
from workbench.core.errors import WorkbenchError
from workbench.models.attention import call
from workbench.models.attention.padded import padded
from workbench.models.attention.request import Request, Result
from workbench.sequences.batch import Batch, MicroBatch, Stream
from workbench.training.verify_resume import ResumeVerdict

ABOUT: dict[str, Any] = {"card": "a card", "driver": "1.2", "versions": {"python": "3", "git": "abc"}}


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(torch.device("cpu"), tmp_path, "tiny")


@pytest.fixture
def record() -> CheckRecord:
    return CheckRecord("part", "of a test", 1000.0)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- parts, page, command


def test_a_part_that_raises_is_reported_and_the_others_continue(setting: Setting) -> None:
    def raising(setting: Setting, record: CheckRecord) -> None:
        record.below("before", 1.0, 2.0)
        raise ValueError("the card is on fire")

    def fine(setting: Setting, record: CheckRecord) -> None:
        record.below("after", 1.0, 2.0)

    records = run_parts([CheckPart("one", "raises", raising, 1), CheckPart("two", "works", fine, 3)], setting, 100)
    assert [each.status for each in records] == ["failed", "passed"]
    assert "the card is on fire" in str(records[0].error)
    assert len(records[0].checks) == 1
    assert [each.budget for each in records] == [25, 75]
    assert not page.passed(records)


def test_an_item_that_raises_fails_and_the_next_is_run(record: CheckRecord) -> None:
    for item in record.in_time(["a", "b"]):
        with record.guarded(item):
            if item == "a":
                raise SystemExit("a command ended with 1")
            record.below(item, 0.0, 1.0)
    assert [(check.name, check.passed) for check in record.checks] == [("a", False), ("b", True)]
    assert record.status == "failed"


def test_what_had_no_time_is_listed_and_the_part_is_no_success() -> None:
    record = CheckRecord("part", "slow", 0.05)
    for item in record.in_time(["a", "b", "c"]):
        record.below(item, 0.0, 1.0)
        time.sleep(0.1)
    assert record.skipped == ["b", "c"]
    assert record.status == "incomplete"
    assert CheckRecord("part", "empty", 1.0).status == "incomplete"


@pytest.mark.parametrize(("value", "passed"), [(0.5, True), (2.0, False), (float("nan"), False), (float("inf"), False)])
def test_a_limit_is_passed_by_numbers_below_it_alone(record: CheckRecord, value: float, passed: bool) -> None:
    record.below("error", value, 1.0)
    assert record.checks[0].passed is passed


def test_page_and_json_have_the_same_numbers(setting: Setting) -> None:
    def part(setting: Setting, record: CheckRecord) -> None:
        record.check("a|b", False, "0.25 of it", ">= 0.5", share=0.25)
        record.note("a remark")
        record.skipped.append("the rest")

    records = run_parts([CheckPart("speed", "how fast", part, 1)], setting, 10)
    written = page.write(setting.folder, "A check", ABOUT, records)
    text, numbers = written.read_text(), json.loads(written.with_suffix(".json").read_text())
    assert numbers["passed"] is False
    assert numbers["card"] == "a card"
    assert numbers["versions"]["git"] == "abc"
    assert numbers["parts"][0]["checks"][0]["numbers"] == {"share": 0.25}
    assert numbers["parts"][0]["skipped"] == ["the rest"]
    for reported in (
        "A check: FAILED",
        "a card",
        "git abc",
        "0.25 of it",
        "a remark",
        "the rest",
        "a\\|b",
        "## What failed",
    ):
        assert reported in text
    assert "failed" not in page.markdown("A check", ABOUT, []).lower()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_card_the_check_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["check", "--output", str(tmp_path / "check")])
    assert gpu_ranks.main() == 2
    assert "no CUDA device is available" in capsys.readouterr().err
    with pytest.raises(WorkbenchError, match="no CUDA device is available"):
        app.run(["check", "--output", str(tmp_path / "check")], "workbench")
    assert not (tmp_path / "check").exists()


@pytest.mark.parametrize(
    ("left_out", "wrong", "passed", "code", "title"),
    [
        ((), False, True, 0, "passed"),
        (("speed",), False, None, 3, "incomplete"),
        (("speed",), True, False, 1, "FAILED"),
        (tuple(part.name for part in gpu_check.PARTS), False, None, 3, "incomplete"),
    ],
)
def test_what_was_not_checked_has_not_passed(
    left_out: tuple[str, ...],
    wrong: bool,
    passed: bool | None,
    code: int,
    title: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The title, the JSON, the exit code, the first sentence, and the command that runs the rest."""

    def part(setting: Setting, record: CheckRecord) -> None:
        for item in record.in_time([] if record.name in left_out else ["item"]):
            record.check(item, not (wrong and record.name == "kernels"), "found", "allowed", ratio=1.25)

    parts = tuple(replace(each, run=part) for each in gpu_check.PARTS)
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    monkeypatch.setattr(gpu_check, "cuda", lambda: torch.device("cpu"))
    monkeypatch.setattr(gpu_check, "facts", lambda device: ABOUT)
    monkeypatch.setattr(gpu_check, "prepare_small", lambda folder: None)
    monkeypatch.setattr(gpu_check, "prepare_random", lambda folder, size: None)
    with pytest.raises(SystemExit) as ended:
        app.run(["check", "--output", str(tmp_path)], "workbench")
    assert ended.value.code == code
    text, numbers = (tmp_path / "gpu-check.md").read_text(), json.loads((tmp_path / "gpu-check.json").read_text())
    assert numbers["passed"] is passed
    assert text.startswith(f"# GPU check (base size): {title}\n")
    correct = "no" if wrong else "not checked" if "kernels" in left_out else "yes"
    fast = "not checked" if left_out else "yes"
    assert f"correct: {correct}" in text
    assert f"fast: {fast}" in text
    assert "1.25 to 1.25 of the peers' speed" in text or left_out
    assert (" ".join(f"--part {name}" for name in left_out) + "`" in text) is bool(left_out)


def test_an_unknown_part_names_the_parts() -> None:
    with pytest.raises(WorkbenchError, match="kernels"):
        chosen(gpu_check.PARTS, ["kernel"])
    assert [part.name for part in chosen(gpu_check.PARTS, ["waits", "kernels"])] == ["kernels", "waits"]
    assert {part.name for part in gpu_check.PARTS} >= gpu_check.SMALL | gpu_check.RANDOM


# ---- each check can fail


def _kernel(monkeypatch: pytest.MonkeyPatch, run: Callable[[Request], Result]) -> None:
    """The padded kernel computes otherwise, and is the only one that is compared."""
    wrong = replace(call.KERNELS["padded"], run=run)
    monkeypatch.setitem(call.KERNELS, "padded", wrong)
    monkeypatch.setattr(kernels, "KERNELS", {"padded": wrong})


def _failed(setting: Setting, record: CheckRecord) -> set[str]:
    kernels.run(setting, record)
    return {check.name for check in record.checks if not check.passed}


def test_right_kernels_pass(setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    _kernel(monkeypatch, padded)
    assert _failed(setting, record) == set()
    names = [check.name for check in record.checks]
    assert len(names) == sum(len(case.dtypes) for case in kernels.CASES) + 3
    assert sum("dropout" in name or "large offsets" in name for name in names) == 3


def _far(request: Request) -> Result:
    return padded(replace(request, window=None if request.window is None else request.window + 1))


def _biased(request: Request) -> Result:
    out, weights = padded(replace(request, score_bias=None))
    return out, weights


def _leaking(request: Request) -> Result:
    bare = {name: values for name, values in request.queries.integers.items() if name != "doc"}
    request.queries.integers = request.keys.integers = bare
    return padded(request)


def _no_gradient(request: Request) -> Result:
    return padded(replace(request, k=request.k.detach()))


@pytest.mark.parametrize(
    ("wrong", "cases"),
    [(_far, "window"), (_biased, "buckets"), (_biased, "alibi"), (_leaking, "packed"), (_no_gradient, "full, float32")],
)
def test_a_wrong_kernel_fails_where_it_is_wrong(
    wrong: Any, cases: str, setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kernel(monkeypatch, wrong)
    failed = _failed(setting, record)
    expected = {check.name for check in record.checks if cases in check.name}
    assert expected
    assert failed >= expected
    if wrong is not _no_gradient:
        assert "full, float32, padded" not in failed


def test_a_backward_that_draws_another_mask_than_its_forward_fails(
    setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each of the two draws has the right mean."""

    def twice(request: Request) -> Result:
        (out, weights), (other, _) = padded(request), padded(request)
        return other + (out - other).detach(), weights

    _kernel(monkeypatch, padded)
    kernels._mask_under_dropout("padded", setting, record)
    _kernel(monkeypatch, twice)
    kernels._mask_under_dropout("padded", setting, record)
    kernels._mean_under_dropout("padded", setting, record)
    assert [check.passed for check in record.checks] == [True, False, True]


def test_offsets_that_wrap_fail(setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last sequence reads the first one's rows."""
    attend = kernels.attend

    def wrapped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *more: Any) -> Any:
        length = kernels.FAR["tiny"][0]
        return attend(q, k, torch.cat([v[:-length], v[:length]]) if len(v) > length else v, *more)

    kernels._far(setting, record)
    monkeypatch.setattr(kernels, "attend", wrapped)
    with contextlib.suppress(RuntimeError):
        kernels._far(setting, record)
    assert [check.passed for check in record.checks] == [True, False]


@pytest.mark.parametrize("scale", [0.9, 1.0])
def test_dropout_of_another_mean_or_of_none_fails(
    scale: float, setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(request: Request) -> Result:
        if request.dropout == 0.0:
            return padded(request)
        return padded(replace(request, dropout=request.dropout if scale < 1 else 0.0, v=request.v * scale))

    _kernel(monkeypatch, wrong)
    kernels._mean_under_dropout("padded", setting, record)
    assert [check.passed for check in record.checks] == [False]


def test_a_kernel_that_refuses_everything_fails(
    setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(request: Request) -> Result:
        raise WorkbenchError("not this one")

    _kernel(monkeypatch, refusing)
    assert "padded" in _failed(setting, record)
    assert any("not this one" in note for note in record.notes)


def test_what_is_no_number_is_an_infinite_error() -> None:
    assert kernels._error(torch.tensor([float("nan"), 1.0]), torch.ones(2)) == float("inf")


def _losses(setting: Setting, monkeypatch: pytest.MonkeyPatch, device: float, first: float) -> list[bool]:
    """The message on losses on the card that are so many times those of the CPU."""

    def losses(recipe: Any, where: torch.device, precision: str) -> recipes.Losses:
        factor = [first, *[device] * 4] if len(made) else [1.0] * 5
        made.append(precision)
        return [{"mlm": factor[step] * (5.0 - step)} for step in range(5)]

    made: list[str] = []
    monkeypatch.setattr(recipes, "losses", losses)
    monkeypatch.setattr(recipes, "recipe_of", lambda name, setting: None)
    record = CheckRecord("recipes", "", 100.0)
    recipes._compare("bert", setting, record)
    assert made[:2] == ["float32", "float32"]
    return [check.passed for check in record.checks]


@pytest.mark.parametrize(
    ("later", "first", "passed"),
    [
        (1.0, 1.0, [True, True]),
        (1.01, 1.0, [True, False]),
        (1.0, 1.01, [False, False]),
        (float("nan"), 1.0, [True, False]),
    ],
)
def test_losses_that_differ_fail(
    later: float, first: float, passed: list[bool], setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _losses(setting, monkeypatch, later, first) == passed


def test_waits_are_counted_by_the_line_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    mode: list[Any] = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", mode.append)
    with waits.waits() as found:
        warnings.warn("Synchronization debug mode is a prototype", stacklevel=1)
        for _ in range(2):
            warnings.warn(f"{waits.WARNING} CUDA operation", stacklevel=1)
    assert mode == ["warn", 0]
    assert list(found.values()) == [2]
    assert next(iter(found)).startswith("tests/benchmarks/test_gpu_check.py:")


@pytest.mark.parametrize(("count", "passed"), [(1, True), (2, False)])
def test_a_step_with_more_waits_fails(
    count: int, passed: bool, setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    _waiting(monkeypatch, count, 1)
    waits.run_waits(setting, record)
    on_purpose, *steps = record.checks
    assert on_purpose.passed
    assert {check.passed for check in steps} == {passed}


def _waiting(monkeypatch: pytest.MonkeyPatch, step: int, on_purpose: int) -> None:
    """A step, and the wait on purpose, that torch reports so often."""

    def reported(count: int) -> None:
        for _ in range(count):
            warnings.warn(f"{waits.WARNING} CUDA operation", stacklevel=1)

    monkeypatch.setattr(waits, "_warm", lambda name, setting: lambda: reported(step))
    monkeypatch.setattr(waits, "one_wait", lambda device: reported(on_purpose))
    monkeypatch.setattr(waits, "emptied", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)


def test_a_torch_that_reports_no_wait_fails(
    setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    _waiting(monkeypatch, 0, 0)
    waits.run_waits(setting, record)
    assert record.status == "failed"


def test_spans_that_overlap_cover_once() -> None:
    assert waits.covered([(0, 10), (2, 5), (8, 12), (20, 21)]) == 13


@pytest.mark.parametrize(("share", "passed"), [(0.1, True), (0.5, False)])
def test_an_idle_card_fails(
    share: float, passed: bool, setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_warm", lambda name, setting: None)
    monkeypatch.setattr(waits, "emptied", lambda: None)
    monkeypatch.setattr(waits, "idle", lambda step: (share, 7))
    waits.run_idle(setting, record)
    assert {check.passed for check in record.checks} == {passed}


@pytest.mark.parametrize(("made", "passed"), [(1e12, True), (1e-3, False)])
def test_a_loader_slower_than_the_card_fails(
    made: float, passed: bool, setting: Setting, record: CheckRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepper = SimpleNamespace(micros=[None])
    monkeypatch.setattr(loader, "Stepper", lambda recipe, world: stepper)
    monkeypatch.setattr(loader, "recipe_of", lambda name, setting: None)
    monkeypatch.setattr(loader, "units", lambda name, micro: 100)
    monkeypatch.setattr(loader, "timed", lambda step, seconds: [0.1])
    monkeypatch.setattr(loader, "emptied", lambda: None)
    monkeypatch.setattr(loader, "alone", lambda *given: made)
    loader.run(setting, record)
    assert [check.passed for check in record.checks] == [passed] * len(loader.MEASURED)


@pytest.mark.parametrize(
    ("other", "tensors", "compared", "passed"),
    [(2.0, [], 18, True), (2.0001, [], 18, False), (2.0, ["weight"], 18, False), (2.0, [], 0, False)],
)
def test_a_resumed_run_that_differs_in_a_bit_fails(
    other: float,
    tensors: list[str],
    compared: int,
    passed: bool,
    setting: Setting,
    record: CheckRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `train.deterministic`, as on a CPU."""
    different = [] if other == 2.0 else [(4, "mlm", 2.0, other)]
    trained: list[dict[str, Any]] = []
    monkeypatch.setattr(resume, "verify_resume", lambda *given: ResumeVerdict(6, 3, compared, different, tensors))
    monkeypatch.setattr(resume, "recipe_of", lambda name, setting: SimpleNamespace(train=None))
    monkeypatch.setattr(resume, "replace", lambda value, **changes: (trained.append(changes), value)[1])
    resume.run(setting, record)
    assert {check.passed for check in record.checks} == {passed}
    assert trained[0]["deterministic"] is True


def test_ranks_that_differ_or_do_not_scale_fail() -> None:
    one = {"losses": [{"mlm": 2.0, "grad_norm": 1.0}], "per_s": 100.0, "step_s": 0.1}

    def reported(loss: float, per_s: float, sharded: float = 2.0) -> list[bool]:
        record = CheckRecord("ranks", "", 1.0)
        many: dict[str, Any] = {"per_s": per_s, "step_s": 0.1}
        many |= {way: [{"mlm": value, "grad_norm": 1.0}] for way, value in (("losses", loss), ("sharded", sharded))}
        gpu_ranks.compare("bert", 2, one, many, record)
        return [check.passed for check in record.checks]

    assert reported(2.0, 190.0) == [True, True, True]
    assert reported(2.01, 190.0) == [False, True, True]
    assert reported(2.0, 190.0, 2.01) == [True, False, True]
    assert reported(2.0, 110.0) == [True, True, False]


STARTING = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
{}
"""


@pytest.mark.parametrize("then", ["time.sleep(600)", "time.sleep(2); sys.exit(3)"], ids=["hangs", "fails"])
def test_ranks_leave_no_process(then: str, tmp_path: Path) -> None:
    """A launcher that hangs or fails, whose rank is in a session of its own."""
    command = [sys.executable, "-c", STARTING.format(then)]
    if "exit" in then:
        code, errors = gpu_ranks.ended(command, 60)
        assert code == 3
    else:
        with pytest.raises(WorkbenchError, match="did not end within 3 s") as raised:
            gpu_ranks.ended(command, 3)
        errors = str(raised.value)
    number = int(re.findall(r"\d+", errors)[-1])
    for _ in range(100):
        if not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail("a rank lives on")


@pytest.mark.parametrize(("asked", "cards"), [([], 1), ([4], 2), ([1], 8), ([16], 16)])
def test_numbers_of_ranks_that_cannot_be_are_refused(asked: list[int], cards: int) -> None:
    with pytest.raises(WorkbenchError):
        gpu_ranks.chosen_ranks(asked, cards)


def test_ranks_double_as_far_as_there_are_cards() -> None:
    assert gpu_ranks.chosen_ranks([], 5) == [2, 4]
    assert gpu_ranks.chosen_ranks([3], 8) == [3]


# ---- what peers and recipes are given


def test_the_peer_of_clip_gets_the_images_that_were_cut() -> None:
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    rows = torch.cat([torch.cat([torch.zeros(1, 768, dtype=torch.uint8), cut(image, 16)]) for image in images])
    streams = {
        "image": Stream({"patches": rows}, torch.tensor([0, 17, 34]), [17, 17]),
        "text": Stream({"input_ids": torch.tensor([2, 9, 3, 2, 3])}, torch.tensor([0, 3, 5]), [3, 2]),
    }
    micro = MicroBatch("pairs", {"main": Batch(streams)}, {})
    given = speed._pairs(micro, 64, 16, 7)
    assert torch.equal(given["images"], images)
    last = speed.SYSTEMS["clip"].vocabulary - 1
    assert given["input_ids"].tolist() == [[2, 9, last, 0, 0, 0, 0], [2, last, 0, 0, 0, 0, 0]]


def test_documents_have_the_lengths_that_the_page_states() -> None:
    import numpy as np

    texts = [json.loads(line)["text"] for line in corpora._documents(np.random.default_rng(0), 1500)]
    lengths = np.array([len(text.split()) for text in texts])
    assert 80 < np.median(lengths) < 100
    assert 140 < lengths.mean() < 180
    words = [word.strip(".").lower() for text in texts for word in text.split()]
    assert 1000 < len(set(words)) < corpora.WORDS

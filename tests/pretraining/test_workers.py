"""The loader's processes: what they send arrives unchanged, and whatever happens to one of them is reported soon."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.core.errors import MachineError
from workbench.pretraining import loader, workers
from workbench.pretraining.arrivals import Arrivals
from workbench.pretraining.loader import Feed, MicroBatches, MicroBatchId, made_ahead
from workbench.pretraining.transport import packed, receive, send
from workbench.pretraining.workers import GiveUp, WorkerError, Workers
from workbench.sequences.batch import Batch, MicroBatch, Stream
from workbench.sequences.flat import ALIGNMENT

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def sent(value: Any) -> tuple[Any, Tensor]:
    """As it comes out of a socket."""
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=send, args=(here, packed(value)))
        sender.start()
        found = receive(there)
        sender.join()
    assert found is not None
    return found


def taken(owned: Workers, *orders: int) -> list[Any]:
    tickets = [owned.ask(order) for order in orders]
    return [owned.take(ticket)[0] for ticket in tickets]


def stream(**fields: Tensor) -> Stream:
    rows = len(next(iter(fields.values())))
    return Stream(fields, torch.tensor([0, rows]), [rows])


def micro_batch() -> MicroBatch:
    """Two views that share the image, with every kind of tensor."""
    image = stream(pixels=torch.arange(2 * 3 * 5 * 7, dtype=torch.uint8).view(2, 3, 5, 7))
    views = {
        name: Batch(
            {"text": stream(input_ids=torch.arange(9) + number, masked=torch.arange(9) % 2 > 0), "image": image},
            {
                "mlm": {
                    "rows": torch.zeros(0, dtype=torch.int64),
                    "soft": torch.randn(3, 4).T,
                    "scale": torch.tensor(2.5),
                }
            },
            ["a"],
        )
        for number, name in enumerate(("main", "clean"))
    }
    return MicroBatch("pairs", views, {"mlm": 3.0}, (0, 1, 2), {"long": 1})


def same(one: MicroBatch, other: MicroBatch) -> bool:
    def plain(micro: MicroBatch) -> list[Tensor]:
        found: list[Tensor] = []
        micro.map(lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
        return found

    pairs = list(zip(plain(one), plain(other), strict=True))
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def test_tensors_arrive_as_they_were() -> None:
    value = {str(dtype): (torch.randn(7, 3) * 9).to(dtype) for dtype in DTYPES}
    value |= {
        "turned": torch.randn(4, 6).T,
        "none": torch.zeros(0, 5),
        "one": torch.tensor(3),
        "part": torch.arange(9)[2:5],
    }
    found, buffer = sent(value)
    for name, tensor in value.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert (found[name].data_ptr() - buffer.data_ptr()) % ALIGNMENT == 0 or not tensor.numel()
        assert found[name].untyped_storage().data_ptr() == buffer.data_ptr()


def test_what_is_more_than_numbers_arrives_too() -> None:
    sparse, learns = torch.eye(3).to_sparse(), torch.ones(2, requires_grad=True)
    found, _ = sent([sparse, learns, {"says": "so"}])
    assert torch.equal(found[0].to_dense(), torch.eye(3))
    assert found[1].requires_grad
    assert found[2] == {"says": "so"}


def test_a_tensor_that_is_met_twice_is_sent_once() -> None:
    tensor = torch.randn(1000)
    (one, other), buffer = sent([tensor, tensor])
    assert one is other
    assert buffer.nbytes < 2 * tensor.nbytes


def test_who_writes_into_a_field_changes_no_other() -> None:
    """Views of one memory would share a version counter: autograd would refuse what it saved of the others."""
    (weights, ids), _ = sent([torch.randn(3), torch.arange(3)])
    learns = torch.ones(3, requires_grad=True)
    loss = (learns * weights).sum()
    ids += 1
    loss.backward()
    assert torch.equal(learns.grad, weights)  # type: ignore[arg-type]


def test_a_micro_batch_is_whole_and_its_shared_streams_are_shared() -> None:
    micro = micro_batch()
    found, buffer = sent(micro)
    assert same(found, micro)
    assert found.views["main"].streams["image"] is found.views["clean"].streams["image"]
    assert (found.counts, found.number, found.dropped) == (micro.counts, micro.number, micro.dropped)
    moved = found.to("cpu")
    assert moved.views["main"].streams["image"] is moved.views["clean"].streams["image"]
    assert buffer.data_ptr() == found.views["main"].streams["text"].fields["input_ids"].untyped_storage().data_ptr()


def test_what_cannot_be_sent_is_reported_with_its_place() -> None:
    def make(order: int) -> Any:
        return lambda: order

    with Workers(make, 1) as owned:
        failure = taken(owned, 1)[0]
    assert failure.kind is WorkerError
    assert "pickle" in failure.message
    assert "Traceback" in failure.message


def test_the_order_does_not_depend_on_who_is_faster() -> None:
    def make(order: int) -> Tensor:
        time.sleep(0.05 if order % 3 == 0 else 0)
        return torch.full((2,), order)

    with Workers(make, 3) as owned:
        tickets = [owned.ask(order) for order in range(20)]
        assert [int(owned.take(ticket)[0][0]) for ticket in tickets] == list(range(20))


def test_what_is_made_ahead_is_bounded_in_bytes() -> None:
    """Four for each worker, as far as 2 GiB hold them, and four whatever their size; few until a size is known."""
    assert made_ahead(16, 37 << 20) == 55
    assert made_ahead(16, 1 << 20) == 64
    assert made_ahead(16, 512 << 20) == 4
    assert made_ahead(16, 8 << 30) == 4
    assert made_ahead(1, 1000) == 4
    assert made_ahead(16, 0) == 4


class Large(MicroBatches):
    """Micro-batches of 4 KiB, from workers."""

    def __init__(self) -> None:
        super().__init__({}, {})

    def micro_batch(self, place: MicroBatchId) -> MicroBatch:
        stream = Stream({"rows": torch.full((512,), place.number)}, torch.tensor([0, 512]), [512])
        return MicroBatch("text", {"main": Batch({"text": stream})}, {})


def test_a_feed_asks_for_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MOST", 6 * 4300)
    source, asked = Large(), []
    with Feed([source], num_workers=3, device=torch.device("cpu")) as feed:
        micros = feed.micro_batches(source, (MicroBatchId("text", asked.append(n) or n, 0) for n in range(20)))
        for number in range(20):
            micro = next(micros)
            assert micro is not None
            assert micro.views["main"].streams["text"].fields["rows"][0] == number
            assert len(asked) - number <= 7  # the one that is taken, and six ahead
    assert len(asked) == 20


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[MicroBatch]:
    """The micro-batches that were pinned, on a machine that need not be able to."""
    found: list[MicroBatch] = []
    monkeypatch.setattr(MicroBatch, "pin_memory", lambda micro: (found.append(micro), micro)[1])
    return found


def test_those_that_are_taken_next_alone_are_pinned(pinned: list[MicroBatch]) -> None:
    arrivals, made = Arrivals(pins=True), [Large().micro_batch(MicroBatchId("text", n, 0)) for n in range(5)]
    buffer = torch.zeros(4096, dtype=torch.uint8)
    for ticket in (3, 0, 2):
        arrivals.put(ticket, (made[ticket], buffer))
    arrivals.pin()
    assert not pinned
    assert not arrivals.has(0)
    assert arrivals.approach([0, 1, 2])
    arrivals.pin()
    assert pinned == [made[0], made[2]]
    arrivals.put(1, (made[1], buffer))
    arrivals.pin()
    assert pinned == [made[0], made[2], made[1]]
    assert arrivals.take(1)[0] is made[1]
    assert not arrivals.has(3)
    assert arrivals.largest == 4096
    assert not Arrivals(pins=False).approach([0])


def test_an_error_is_taken_where_values_are_pinned() -> None:
    arrivals = Arrivals(pins=True)
    arrivals.put(0, (None, torch.zeros(1)))
    arrivals.approach([0])
    arrivals.pin()
    assert arrivals.take(0)[0] is None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "POLL", 0.05)
    monkeypatch.setattr(workers, "STUCK", 20)
    monkeypatch.setattr(workers, "GRACE", 0.3)


def in_a_worker_send_only(monkeypatch: pytest.MonkeyPatch, count: int, number: int) -> None:
    """The first bytes of its message; then it is sent a signal."""
    whole = workers.send

    def some(line: socket.socket, parts: list[Any]) -> None:
        if workers._own is None:
            whole(line, parts)
            return
        line.sendall(bytes(parts[0])[:count])
        os.kill(os.getpid(), number)

    monkeypatch.setattr(workers, "send", some)


def stopping(order: int) -> Tensor:
    if order:
        os.kill(os.getpid(), signal.SIGSTOP)
    return torch.zeros(3)


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_is_stopped_is_reported() -> None:
    with (
        pytest.raises(MachineError, match=r"process \d+\) has been stopped, by SIGSTOP"),
        Workers(stopping, 2) as owned,
    ):
        taken(owned, 0, 0, 1)


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_stops_amid_a_message_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that receives waits for the rest of it, and nobody waits for the thread."""
    in_a_worker_send_only(monkeypatch, 40, signal.SIGSTOP)
    with pytest.raises(MachineError, match="has been stopped"), Workers(lambda _: torch.zeros(999), 2) as owned:
        taken(owned, 0)


@pytest.mark.parametrize("cut", [4, 40])
def test_a_worker_that_dies_amid_a_message_is_reported(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    in_a_worker_send_only(monkeypatch, cut, signal.SIGKILL)
    with pytest.raises(MachineError, match="was killed by SIGKILL"), Workers(lambda _: torch.zeros(999), 2) as owned:
        taken(owned, 0)


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_waits_for_what_does_not_come_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    def make(order: int) -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    why = r"hangs: for 1 seconds it neither computed nor read.*made sequences"
    with pytest.raises(MachineError, match=why), Workers(make, 1) as owned:
        taken(owned, 0)
    assert "test_workers.py" in capfd.readouterr().err


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["reads", "computes"])
def test_slow_is_not_stuck(caplog: pytest.LogCaptureFixture, how: str) -> None:
    """A file system that does not answer yet, and work that takes long: it is said that they are waited for."""

    def make(order: int) -> Tensor:
        end = time.monotonic() + 2
        if how == "reads":
            workers.note(workers.READING)
            time.sleep(2)
        while time.monotonic() < end:
            sum(range(1000))
        return torch.ones(1)

    with caplog.at_level(logging.WARNING, "workbench"), Workers(make, 1) as owned:
        assert owned.take(owned.ask(7))[0]
    assert "waiting for the loader for 1 seconds: its worker" in caplog.text
    assert caplog.text.count("waiting") == 1


@pytest.mark.usefixtures("impatient")
def test_after_a_signal_nobody_waits_for_long() -> None:
    asked: list[int] = []
    start = time.monotonic()
    with Workers(lambda _: time.sleep(60), 1, stop=lambda: bool(asked)) as owned:
        ticket = owned.ask(0)
        asked.append(signal.SIGTERM)
        with pytest.raises(GiveUp):
            owned.take(ticket)
    assert time.monotonic() - start < 30


def test_an_error_where_things_are_received_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise MemoryError("no pinned memory")

    receives = workers.receive
    monkeypatch.setattr(workers, "receive", lambda *a, **k: full() if workers._own is None else receives(*a, **k))
    with pytest.raises(MemoryError, match="no pinned memory"), Workers(lambda order: order, 1) as owned:
        taken(owned, 0)


def test_too_many_open_files_are_reported_before_the_first_micro_batch() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 6, hard))
        with pytest.raises(OSError, match="Too many open files"), Workers(lambda order: order, 50):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_neither_shared_memory_nor_open_files_are_needed() -> None:
    """A container's /dev/shm is small, and a batch of many tensors has many files where each has one."""

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    shared = set(os.listdir("/dev/shm"))
    with Workers(lambda order: [torch.full((order, 9), order) for _ in range(50)], 2) as owned:
        during = open_files()
        kept = taken(owned, *range(16))
        assert open_files() <= during + 2  # that of the selector; not one for each of 800 tensors
        assert set(os.listdir("/dev/shm")) <= shared
    assert [int(values[3].sum()) for values in kept] == [9 * order**2 for order in range(16)]
    assert all(worker.line.fileno() == -1 for worker in owned._workers)
    assert not owned._processes


def test_a_component_that_forks_and_returns_twice_is_reported() -> None:
    def make(order: int) -> int:
        os.fork()
        return order

    def use(owned: Workers) -> None:
        for order in range(20):
            owned.take(owned.ask(order))
            time.sleep(0.05)

    with pytest.raises(MachineError, match=r"called os\.fork, and returned in both processes"), Workers(make, 1) as own:
        use(own)


@pytest.mark.usefixtures("impatient")
def test_a_child_that_has_ended_is_nobody_to_wait_for() -> None:
    def make(_: int) -> None:
        if os.fork() == 0:
            os._exit(0)
        time.sleep(60)

    start = time.monotonic()
    with pytest.raises(MachineError), Workers(make, 1) as owned:
        owned.take(owned.ask(0))
    assert time.monotonic() - start < 30

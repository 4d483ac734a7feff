"""Ranks find each other after any of them was killed and started again, however often each torchrun agent restarted."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import distributed as dist

from workbench.core.errors import WorkbenchError
from workbench.core.processes import membership
from workbench.core.processes.launch import Launch
from workbench.core.processes.membership import LostRanksError, Membership

LIMIT = 20


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dist.TCPStore:
    """The store of torchrun's agent, and little patience."""
    monkeypatch.setenv("WORKBENCH_PATIENCE", "10")
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ranks that end themselves."""
    found: list[int] = []

    def end(self: Membership) -> None:
        found.append(self.launch.rank)
        self._left.set()

    monkeypatch.setattr(Membership, "_end", end)
    return found


def launch(store: dist.TCPStore, rank: int, size: int = 2) -> Launch:
    return Launch(rank, size, None, None, "127.0.0.1", store.port, "torchrun", shares_store=True)


def join(store: dist.TCPStore, *ranks: int, size: int = 2) -> list[Membership]:
    """Processes that are started now; none of them has joined before."""
    for rank in ranks:
        membership._joined.pop(("127.0.0.1", store.port, rank, size), None)
    with ThreadPoolExecutor(len(ranks)) as pool:
        found = [pool.submit(Membership, launch(store, rank, size)) for rank in ranks]
        return [each.result(LIMIT) for each in found]


@pytest.fixture(autouse=True)
def host_of_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread is a node of its own, as a pod of Kubernetes."""
    monkeypatch.setattr(socket, "gethostname", lambda: threading.current_thread().name)


def leave(*members: Membership) -> None:
    for member in members:
        member.leave()


def test_ranks_meet_and_meet_again(store: dist.TCPStore) -> None:
    """The second time in the same processes, as a script that trains twice."""
    for number in range(2):
        with ThreadPoolExecutor(2) as pool:
            members = list(pool.map(lambda rank: Membership(launch(store, rank)), range(2)))
        assert [member.generation for member in members] == [0, 0]
        members[0].store.set("mine", str(number))
        assert members[1].store.get("mine") == str(number).encode()
        leave(*members)


def test_the_place_of_a_dead_process_is_not_waited_for(store: dist.TCPStore) -> None:
    """Rank 1 was killed while it joined; its agent has started it three times, the other agent never."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(join, store, 0)
        time.sleep(0.2)
        for number in range(3):
            keys = dist.PrefixStore(f"workbench/{number}", store)
            keys.set("size", "2")
            keys.set("member/1", "dead")
        (second,) = join(store, 1)
        (first,) = waiting.result(LIMIT)
    assert first.generation == second.generation == 3
    leave(first, second)


def test_the_rest_of_an_earlier_generation_ends(store: dist.TCPStore, ended: list[int]) -> None:
    old = join(store, 0, 1)
    new = join(store, 0, 1)
    deadline = time.monotonic() + LIMIT
    while len(ended) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(ended) == [0, 1]
    assert {member.generation for member in new} == {1}
    leave(*old, *new)


def test_another_number_of_ranks_is_another_generation(store: dist.TCPStore, ended: list[int]) -> None:
    old, new = join(store, 0, 1), join(store, 0, 1, 2, size=3)
    assert {member.generation for member in new} == {1}
    leave(*old, *new)


def test_a_local_rank_is_derived_or_asked_for(store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    members = join(store, 0, 1)
    assert [(member.local_rank, member.local_size) for member in members] == [(0, 1), (0, 1)]
    leave(*members)
    monkeypatch.setattr(socket, "gethostname", lambda: "one")
    with pytest.raises(WorkbenchError, match="2 processes run on one, and LOCAL_RANK is not set"):
        join(store, 0, 1)


def test_who_does_not_come_is_named(store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_PATIENCE", "1")
    with pytest.raises(LostRanksError, match=r"rank 1 of 4 .*: rank 0, rank 2, rank 3 did not come"):
        join(store, 1, size=4)


def test_who_is_missing_is_named(store: dist.TCPStore) -> None:
    """A rank that ended, one without a heartbeat, one that is behind; in this order."""
    first, second, third = join(store, 0, 1, 2, size=3)
    first.calls = second.calls = 7
    second.step = 4
    time.sleep(1.5)
    assert "rank 2" in first.missing()
    assert "is behind" in first.missing()
    second._left.set()
    second._thread.join()
    second._keys.set("beat/1", second._beat(5))
    assert f"process {os.getpid()}, step 4) sends no heartbeat" in first.missing()
    third.leave(ValueError())
    assert "rank 2" in (named := first.missing())
    assert "ended with ValueError" in named
    leave(first)


def test_a_rank_without_a_heartbeat_is_named_early_once_and_by_rank_0_alone(
    store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before the patience of 10 seconds is over. A rank that has left is not named."""
    monkeypatch.setattr(membership, "SILENT", 1.2)
    first, second, third, fourth = join(store, 0, 1, 2, 3, size=4)
    third._left.set()
    third._thread.join()
    third._keys.set("beat/2", third._beat(5))
    fourth.leave()
    deadline = time.monotonic() + 8
    while not caplog.messages and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    (message,) = caplog.messages
    assert re.match(r"rank 2 \([^)]*, step 0\) has sent no heartbeat for 1 seconds\. Look at its node", message)
    assert "WORKBENCH_PATIENCE (10 seconds)" in message
    leave(first, second)


def test_who_ended_since_others_were_lost_is_not_the_reason(store: dist.TCPStore) -> None:
    """Rank 3 was killed; rank 1 noticed and ended; rank 2 had finished. Then rank 2 fails with an error of its own."""
    members = join(store, 0, 1, 2, 3, size=4)
    killed = members[3]
    killed._left.set()
    killed._thread.join()
    killed._keys.set("beat/3", killed._beat(5))
    members[1].leave(LostRanksError("rank 1 lost the others"))
    members[2].leave()
    named = members[0].missing()
    assert named.startswith("rank 3 (")
    assert named.endswith(") sends no heartbeat")
    killed._keys.set("beat/3", killed._beat(membership.LEFT))
    for rank, state in {
        1: "ended with LostRanksError",
        2: "ended without an error",
        3: "ended without an error",
    }.items():
        assert re.search(rf"rank {rank} \([^)]*\) {state}", members[0].missing())
    members[2]._ended = "ValueError"
    members[2]._keys.set("beat/2", members[2]._beat(membership.LEFT))
    assert re.fullmatch(r"rank 2 \([^)]*\) ended with ValueError", members[0].missing())
    leave(members[0])


def test_an_error_that_comes_while_the_others_are_looked_at_is_named(
    store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = join(store, 0, 1)
    monkeypatch.setattr(first._left, "wait", lambda _: second.leave(KeyError("x")))
    assert re.fullmatch(r"rank 1 \([^)]*\) ended with KeyError", first.missing())
    monkeypatch.undo()
    leave(first)


def test_a_store_that_is_gone_is_named(store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    members = join(store, 0, 1)
    monkeypatch.setattr(Membership, "_beats", lambda self: (_ for _ in ()).throw(dist.DistNetworkError("gone")))
    assert members[0].missing() == "torchrun's agent on 127.0.0.1 does not answer"
    leave(*members)

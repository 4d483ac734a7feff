"""Which tasks share a step, and learning rates."""

from __future__ import annotations

from collections import Counter

import pytest

from workbench.core.errors import WorkbenchError
from workbench.pretraining.loader import training_places
from workbench.pretraining.schedule import Kind, TaskSchedule
from workbench.recipe.spec import SequenceSpec, TaskSpec


def tasks(**weights: float) -> dict[str, TaskSpec]:
    return {name: TaskSpec({}, SequenceSpec("document"), [], weight=weight) for name, weight in weights.items()}


def test_together_runs_every_task_every_step() -> None:
    schedule = TaskSchedule("together", tasks(a=1, b=3), 0)
    assert [(t.task, t.number) for t in schedule.at(7)] == [("a", 7), ("b", 7)]
    assert schedule.loss_weight("b") == 3


def test_sampled_is_exact_over_blocks_and_counts_each_tasks_own_steps() -> None:
    schedule = TaskSchedule("sampled", tasks(coco=9, vg=12, cc=6, sbu=6), 5)
    drawn: Counter[str] = Counter()
    for step in range(11 * 40):
        (turn,) = schedule.at(step)
        assert turn.number == drawn[turn.task]
        drawn[turn.task] += 1
        if (step + 1) % 11 == 0:
            assert drawn == {"coco": 3 * (step + 1) // 11, "vg": 4 * (step + 1) // 11, "cc": 2 * (step + 1) // 11,
                             "sbu": 2 * (step + 1) // 11}  # fmt: skip
    assert schedule.loss_weight("vg") == 1.0


def test_sampled_order_is_shuffled_and_depends_on_the_seed() -> None:
    def order(seed: int) -> list[str]:
        schedule = TaskSchedule("sampled", tasks(a=5, b=5), seed)
        return [schedule.at(step)[0].task for step in range(60)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1)[:10] != order(1)[10:20] or order(1)[20:30] != order(1)[:10]


def test_sampled_takes_weights_of_any_kind() -> None:
    schedule = TaskSchedule("sampled", tasks(a=0.7, b=0.3, c=1e-9), 0)
    drawn = Counter(schedule.at(step)[0].task for step in range(len(schedule.block)))
    assert drawn["a"] / drawn["b"] == pytest.approx(7 / 3, rel=0.01)
    assert drawn["c"] >= 1


@pytest.mark.parametrize("kind", ["together", "sampled"])
def test_places_say_the_progress_of_the_run_whatever_the_lanes_and_the_start(kind: Kind) -> None:
    schedule = TaskSchedule(kind, tasks(a=1, b=3), 5)
    whole = list(training_places(schedule, range(20), range(4), 20))
    assert {place.progress for place in whole} == {step / 20 for step in range(20)}
    late = list(training_places(schedule, range(13, 20), range(1, 4, 2), 20))
    assert late == [place for place in whole if place.progress >= 13 / 20 and place.lane in (1, 3)]


def test_staged_tasks_join_and_stay() -> None:
    specs = tasks(a=1, b=1)
    specs["b"].start_step = 4
    schedule = TaskSchedule("staged", specs, 0)
    assert [t.task for t in schedule.at(3)] == ["a"]
    assert [(t.task, t.number) for t in schedule.at(6)] == [("a", 6), ("b", 2)]


def test_staged_tasks_may_follow_each_other() -> None:
    specs = tasks(a=1, b=1, c=1)
    specs["a"].end_step, specs["b"].start_step, specs["b"].end_step, specs["c"].start_step = 3, 3, 5, 4
    schedule = TaskSchedule("staged", specs, 0)
    found = ["".join(turn.task for turn in schedule.at(step)) for step in range(7)]
    assert found == ["a", "a", "a", "b", "bc", "c", "c"]
    assert schedule.at(4)[0].number == 1


def test_steps_without_a_task_are_an_error() -> None:
    specs = tasks(a=1, b=1)
    specs["a"].end_step, specs["b"].start_step = 3, 5
    with pytest.raises(WorkbenchError, match=r"tasks\.a ends before step 3, and no other task has that step"):
        TaskSchedule("staged", specs, 0)
    specs["b"].start_step, specs["b"].end_step = 2, 9
    with pytest.raises(WorkbenchError, match=r"tasks\.b ends before step 9"):
        TaskSchedule("staged", specs, 0)
    specs["a"].end_step, specs["b"].end_step = None, 2
    with pytest.raises(WorkbenchError, match=r"tasks\.b: end_step = 2, start_step = 2; allowed: a later end"):
        TaskSchedule("staged", specs, 0)
    specs["b"].start_step = 0
    with pytest.raises(WorkbenchError, match="end_step is for `schedule: staged`"):
        TaskSchedule("together", specs, 0)


def test_a_start_step_that_would_be_ignored_is_an_error() -> None:
    specs = tasks(a=1, b=1)
    specs["b"].start_step = 4
    with pytest.raises(WorkbenchError, match="schedule: staged"):
        TaskSchedule("together", specs, 0)
    specs["a"].start_step = 1
    with pytest.raises(WorkbenchError, match="no task starts at step 0"):
        TaskSchedule("staged", specs, 0)
    with pytest.raises(WorkbenchError, match=r"tasks\.a\.weight = 0"):
        TaskSchedule("sampled", tasks(a=0), 0)

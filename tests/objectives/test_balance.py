"""The objective `balance` is tested with the experts whose loads it reads (tests/models/test_experts.py)."""

EXCUSED = "it reads the loads of experts, which the networks of the contracts don't have"

"""Measurements that the documentation quotes, each a command: `python -m benchmarks.NAME`."""

import os

# Before torch is imported, for all contestants alike: threads that wait by spinning would measure the other work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

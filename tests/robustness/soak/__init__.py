"""Trials of what a run or a corpus must survive, by area, endlessly: kills, signals, full disks, damage, bad values.

    python -m tests.robustness.soak --areas kills,signals --seconds 600 --seed 7
    python -m tests.robustness.soak --areas kills --seed 7 --trial 123

A trial is an area, a seed and a number: they alone decide what is run, what happens to it, and when. A trial states
what must hold and raises `FindingError` where it does not; its folder is then kept, with the logs of its commands.
"""

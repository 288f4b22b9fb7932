"""Solution to the exercise of 01_env_check. Try it yourself first."""

from __future__ import annotations


# diagnose
def diagnose():
    return {"A": "environment", "B": "numpy", "C": "shadowing"}

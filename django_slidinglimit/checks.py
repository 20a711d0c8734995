"""System checks: what is wrong with the set-up, told at start."""

from __future__ import annotations


def register_all() -> None:
    """Register the checks; called when the app is ready."""

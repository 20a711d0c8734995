"""What hypothesis draws for the core: rates, counters, and how long it looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from django_slidinglimit.core.rates import MAX_PRODUCT, Rate
from django_slidinglimit.core.window import Reading

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "sliding_window_counter.json").read_text()
)

# The same examples at every run, however slow the machine is.
thorough = settings(max_examples=250, deadline=None, derandomize=True, database=None)
brief = settings(thorough, max_examples=150)

# Counts above the limit occur when a limit is lowered.
MOST = 1.2


@st.composite
def small_counters(draw: st.DrawFn) -> tuple[Rate, Reading]:
    """Few units in a short window: edges and equalities are met often."""
    rate = Rate(draw(st.integers(0, 12)), draw(st.integers(1, 40)))
    counts = st.integers(0, 15)
    elapsed = draw(st.integers(0, rate.window_ms - 1))
    return rate, Reading(draw(counts), draw(counts), elapsed)


@st.composite
def large_counters(draw: st.DrawFn) -> tuple[Rate, Reading]:
    """Up to the largest numbers that a rate may hold."""
    window = draw(st.integers(1, 10**10))
    rate = Rate(draw(st.integers(0, (MAX_PRODUCT - 1) // window)), window)
    counts = st.integers(0, min(int(rate.limit * MOST), (MAX_PRODUCT - 1) // window))
    elapsed = draw(st.integers(0, window - 1))
    return rate, Reading(draw(counts), draw(counts), elapsed)


counters = st.one_of(small_counters(), large_counters())

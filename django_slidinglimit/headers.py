"""A decision -> response header fields."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from . import conf
from .core.window import Reading, retry_after

if TYPE_CHECKING:
    from .core.decisions import Answer, Decision


def fields(decision: Decision) -> dict[str, str]:
    """The fields that tell a client of its limits.

    Observing rules do not show, nor do rules whose counter was not read. Retry-After (RFC 9110,
    section 10.2.3) is in whole seconds, rounded up, at least 1; there is none when the request can
    never be admitted.
    """
    settled = conf.current()
    found: dict[str, str] = {}
    if not decision.allowed:
        found["Cache-Control"] = "no-store"
        wait = decision.retry_after
        if wait is not None:
            found["Retry-After"] = str(max(1, seconds(wait)))
    known = [
        answer
        for answer in decision.answers
        if answer.reading is not None and not answer.hit.rule.observe
    ]
    if known:
        if "x-ratelimit" in settled.HEADERS:
            found |= _x_ratelimit(known, decision.time_ms if settled.RESET == "epoch" else None)
        if "ratelimit" in settled.HEADERS:
            found |= _ratelimit(known)
    return found


def seconds(milliseconds: int) -> int:
    """Whole seconds, rounded up."""
    return -(-milliseconds // 1000)


def _x_ratelimit(answers: list[Answer], time_ms: int | None) -> dict[str, str]:
    """The customary fields, of the rule with the least left."""
    verdict = min(
        (answer.verdict for answer in answers),
        key=lambda v: (v.allowed, v.remaining, -v.reset_after),
    )
    reset = seconds(verdict.reset_after + (time_ms or 0))
    return {
        "X-RateLimit-Limit": str(verdict.limit),
        "X-RateLimit-Remaining": str(verdict.remaining),
        "X-RateLimit-Reset": str(reset),
    }


def _ratelimit(answers: list[Answer]) -> dict[str, str]:
    """The fields of draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4, all rules listed.

    `t` is the seconds within which no request for more than `r` is admitted. The draft is
    unsettled.
    """
    policies, limits = [], []
    names: set[str] = set()
    for answer in answers:
        verdict, rate = answer.verdict, answer.hit.rule.rate
        name = _string(_unique(_printable(answer.hit.rule.name or answer.hit.rule.id), names))
        policies.append(f"{name};q={verdict.limit};w={seconds(rate.window_ms)}")
        wait = _wait_for_more(answer)
        told = f"{name};r={verdict.remaining}"
        limits.append(told if wait is None else f"{told};t={wait}")
    return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(limits)}


def _wait_for_more(answer: Answer) -> int | None:
    """Seconds until one more than what remains would fit; on refusal until the same hit would."""
    verdict, reading = answer.verdict, answer.reading
    if not verdict.allowed:
        wait = verdict.retry_after
    elif reading is None:
        return None
    else:
        previous, current, elapsed = reading
        after = Reading(previous, current + answer.charged, elapsed)
        wait = retry_after(answer.hit.rule.rate, after, verdict.remaining + 1)
    return None if wait is None else max(1, seconds(wait))


def _unique(name: str, taken: set[str]) -> str:
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}-{count}"
    taken.add(unique)
    return unique


@lru_cache(maxsize=4096)
def _printable(text: str) -> str:
    """The text with a question mark for whatever is no printable ASCII, line ends above all."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)


@lru_cache(maxsize=4096)
def _string(printable: str) -> str:
    """A String of RFC 9651, section 3.3.3."""
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""The overview: the state of things, who is limited now, and the last hour of each rule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils.translation import gettext as _

from django_slidinglimit import conf, connections
from django_slidinglimit.usage import overview
from django_slidinglimit.usage.rules import stored_rules
from django_slidinglimit.usage.server import server

from . import charts
from .figures import a_second, number, percent, shortly
from .hours import clock
from .pages import when_away
from .people import people
from .rows import Row, duration, encodable
from .states import shown_time

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.usage.overview import Overview, RuleHour, Series

    from .pages import UsagePages

# Processes that are listed.
MOST_PROCESSES = 50


@dataclass(frozen=True)
class LimitedRow(Row):
    """A client that was refused in the last minute; how often, and since when.

    `looked_ms` is the server's time.
    """

    times: int = 0
    since_ms: int = 0
    looked_ms: int = 0

    @property
    def since(self) -> str:
        return duration(max(0, self.looked_ms - self.since_ms))

    @property
    def since_time(self) -> str:
        return shown_time(datetime.fromtimestamp(self.since_ms / 1000, UTC), "H:i:s")


@dataclass(frozen=True)
class RuleRow:
    """A rule in the last hour, in the words that people read."""

    hour: RuleHour

    @property
    def key(self) -> str:
        return encodable(self.hour.key)

    @cached_property
    def id(self) -> str:
        """An HTML id that stays the same from one refresh to the next."""
        digest = blake2b(self.hour.key.encode(errors="replace"), digest_size=8)
        return f"rule-{digest.hexdigest()}"

    @property
    def allowed(self) -> str:
        return a_second(self.hour.series.now.allowed)

    @property
    def refused(self) -> str:
        return a_second(self.hour.series.now.refused)

    @property
    def would(self) -> str:
        return a_second(self.hour.series.now.would)

    @property
    def sparkline(self) -> charts.Sparkline:
        series, observed = self.hour.series, self.hour.usage.rule.observe
        return charts.sparkline(series.allowed, series.would if observed else series.refused)

    @property
    def title(self) -> str:
        return _("The last hour of %s") % self.hour.usage.rule.name

    @property
    def description(self) -> str:
        usage, series = self.hour.usage, self.hour.series
        words = {
            "allowed": number(usage.allowed),
            "over": number(usage.over),
            "peak": a_second(series.peak),
        }
        if usage.rule.observe:
            return _("%(allowed)s within the limit, %(over)s over it; up to %(peak)s/s.") % words
        return _("%(allowed)s allowed, %(over)s refused; up to %(peak)s/s.") % words


class Card(NamedTuple):
    """A number that matters, what it counts, and the state that it stands for."""

    value: str
    label: str
    state: str = ""


class Line(NamedTuple):
    """One minute of the chart, in numbers."""

    time: str
    allowed: str
    refused: str


def page(
    pages: UsagePages, request: HttpRequest, extra_context: dict[str, Any] | None = None
) -> HttpResponse:
    """Who is limited now, and the rules of the last hour."""
    context: dict[str, Any] = {
        "title": _("Usage"),
        "rules_stored": len(stored_rules()),
        **when_away(),
        "rules_poll": conf.current().RULES_POLL,
        **(extra_context or {}),
    }
    with pages.told(context):
        found = overview.overview()
        persons = people(
            request, pages.admin_site, (r.standing.client for r in found.limited.clients)
        )
        context.update(
            server=server(),
            trip=found.trip,
            found=found,
            version=found.version[:6],
            since=found.since_ms and duration(max(0, found.trip.time_ms - found.since_ms)),
            processes=found.processes[:MOST_PROCESSES],
            dropped=found.dropped,
            cards=_cards(found),
            limited=[
                LimitedRow(
                    each.usage,
                    each.standing,
                    persons.get(each.standing.client),
                    times=each.times,
                    since_ms=each.since_ms,
                    looked_ms=found.trip.time_ms,
                )
                for each in found.limited.clients
            ],
            rules=[RuleRow(hour) for hour in found.rules],
            rule_page=pages.url("rule"),
            observing=any(hour.usage.rule.observe for hour in found.rules),
            **_chart(found),
        )
        if not found.rules:
            context["example"] = _example(request)
            context["keys"] = f"{connections.pages().prefix}usage:*"
            context["cache"] = conf.current().CACHE
    return pages.page(request, "overview", context)


def _cards(found: Overview) -> list[Card]:
    allowed, refused, would = (round(60 * each) for each in found.total.now)
    every = allowed + refused + would
    near, blocked = found.near, found.limited.blocked
    share = f" ({percent(refused, every)})" if refused else ""
    return [
        Card(number(every), _("requests a minute")),
        Card(number(refused), _("refused a minute") + share, "limited" if refused else ""),
        Card("…" if near is None else number(near), _("near a limit"), "near" if near else ""),
        Card(number(blocked), _("blocked clients"), "blocked" if blocked else ""),
        Card(number(would), _("would be refused a minute"), "observed" if would else ""),
    ]


def _chart(found: Overview) -> dict[str, Any]:
    """The chart of all rules, what it says in words, and its numbers, the newest first."""
    through, refused = _through(found.total), found.total.refused
    numbers = [minute.number for minute in found.trip.minutes]
    lines = [
        Line(clock(minute), a_second(passed), a_second(over))
        for minute, passed, over in zip(numbers, reversed(through), reversed(refused), strict=True)
    ]
    drawn = charts.history(through, refused)
    words = {
        "allowed": number(sum(hour.usage.allowed + hour.usage.would for hour in found.rules)),
        "refused": number(sum(hour.usage.refused for hour in found.rules)),
        "peak": a_second(drawn.drawn.peak),
    }
    told = _("%(allowed)s allowed and %(refused)s refused; up to %(peak)s a second.") % words
    return {
        "hour": drawn,
        "hour_full": shortly(drawn.full),
        "hour_half": shortly(drawn.half),
        "hour_description": told,
        "hour_lines": lines,
    }


def _through(series: Series) -> list[float]:
    """What was let through: rules that only observe do so with what they would refuse."""
    return [a + w for a, w in zip(series.allowed, series.would, strict=True)]


def _example(request: HttpRequest) -> str:
    """A line that sends a request to a place that has a limit, as far as one is known."""
    plain = (
        stored.path.text.removesuffix("*").removeprefix("/")
        for stored in stored_rules().values()
        if stored.path and not stored.path.view and "<" not in stored.path.text
    )
    return f"curl -i {request.build_absolute_uri('/' + next(plain, ''))}"

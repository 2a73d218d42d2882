"""The gauges of the demo's site: their locations, and fictitious, reproducible readings."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from html import escape

import msgspec

#: The time of the site's last update.
NOW = datetime(2026, 11, 2, 12, tzinfo=timezone.utc)
#: The year of the readings on one long page.
YEAR = 2025
_EPOCH = datetime(2025, 1, 1, tzinfo=timezone.utc)

# Independent of the locale: the site is the same everywhere.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_STORMS_A_YEAR = 45
_RISE_H, _FALL_H, _FORGOTTEN_H = 8.0, 36.0, 240.0
_TIDE_CM, _TIDE_H = 110, 12.42


@dataclass(frozen=True, slots=True)
class Station:
    """One gauge; levels in centimetres above its datum."""

    slug: str
    name: str
    kilometre: float
    datum_m: float
    since: int
    sensor: str
    normal_cm: int
    warning_cm: int
    flood_cm: int
    about: str
    mind: str

    @property
    def is_tidal(self) -> bool:
        """Return whether its level depends on the tide."""
        return self.datum_m < 10

    def level(self, at: datetime) -> int:
        """Return the level at an hour."""
        hours = (at - _EPOCH).total_seconds() / 3600
        season = 0.12 * self.normal_cm * math.cos(2 * math.pi * (hours / 8766 - 0.12))
        late = self.kilometre / 9  # the time that the water takes to reach the station
        storms = sum(size * _pulse(hours - late - begun) for begun, size in _storms(at.year))
        tide = _TIDE_CM * math.sin(2 * math.pi * hours / _TIDE_H) if self.is_tidal else 0.0
        return max(0, round(self.normal_cm + season + storms * self.normal_cm + tide))


def read_stations(raw: bytes) -> list[Station]:
    """Return the stations of a JSON file, from the source to the sea."""
    return msgspec.json.decode(raw, type=list[Station])


def last_day(station: Station) -> list[tuple[datetime, int]]:
    """Return the hourly readings of the day before the site's last update, oldest first."""
    hours = (NOW - timedelta(hours=back) for back in range(23, -1, -1))
    return [(at, station.level(at)) for at in hours]


def station_page(station: Station, before: Station | None, after: Station | None) -> str:
    """Return the station's page: head lines, an empty line, and the main content."""
    readings = last_day(station)
    rows = "\n".join(
        f'<tr><td><time datetime="{at:%Y-%m-%dT%H:00Z}">{at:%H:00}</time></td><td>{level}</td>'
        f"<td>{level - earlier:+d}</td></tr>"
        for (at, level), (_, earlier) in zip(readings[1:], readings, strict=False)
    )
    way = " · ".join(
        f'{where}: <a href="/stations/{other.slug}">{escape(other.name)}</a>'
        for where, other in (("upstream", before), ("downstream", after))
        if other is not None
    )
    return f"""<title>{escape(station.name)}</title>
<meta name="description" content="{escape(station.about)}">
<meta name="geo.kilometre" content="{station.kilometre}">

<h1>{escape(station.name)}</h1>
<p>{escape(station.about)}</p>
<p><strong>Now: {readings[-1][1]} cm</strong> at {NOW:%H:00} UTC.
Warning at {station.warning_cm}, flood at {station.flood_cm}.</p>
{_hydrograph(station, [level for _, level in readings])}
<h2>Bear in mind</h2>
<p>{escape(station.mind)}</p>
<h2>The facts</h2>
<table>
<tr><th>Kilometre</th><td>{station.kilometre}</td></tr>
<tr><th>Datum</th><td>{station.datum_m} m</td></tr>
<tr><th>Sensor</th><td>{station.sensor}</td></tr>
<tr><th>Read since</th><td>{station.since}</td></tr>
</table>
<h2>The last day</h2>
<table>
<thead><tr><th>Hour (UTC)</th><th>Level (cm)</th><th>Change</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p>{way}</p>
"""


def list_page(stations: list[Station]) -> str:
    """Return the page that lists all stations, including one that was closed."""
    rows = "\n".join(
        f'<tr><td><a href="/stations/{s.slug}">{escape(s.name)}</a></td><td>{s.kilometre}</td><td>{s.sensor}</td>'
        f"<td>{s.since}</td><td>{s.level(NOW)}</td><td>{s.warning_cm}</td></tr>"
        for s in stations
    )
    return f"""<title>The stations</title>
<meta name="description" content="{len(stations)} gauges, from the source to the sea.">

<h1>The stations</h1>
<p>From the source to the sea. Levels are those of {NOW:%H:00} UTC, in centimetres above each station's own
<a href="/glossary#datum">datum</a>, so there is no point in comparing two of them.</p>
<table>
<thead><tr><th>Station</th><th>km</th><th>Sensor</th><th>Since</th><th>Now</th><th>Warning</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p>The gauge at the <a href="/stations/mill-race">Mill Race</a> was withdrawn in 1998.</p>
"""


def readings_csv(stations: list[Station]) -> str:
    """Return the last day of all stations as CSV; a missing reading is empty."""
    lines = ["station,time,level_cm"]
    for station in stations:
        for at, level in last_day(station):
            stuck = station.slug == "quillmarsh" and 2 <= at.hour < 8 and at.date() == NOW.date()
            lines.append(f"{station.slug},{at:%Y-%m-%dT%H:00Z},{'' if stuck else level}")
    return "\n".join(lines) + "\n"


def year_page(station: Station) -> str:
    """Return a page with a whole year of hourly readings: about a megabyte."""
    return "\n".join(
        [
            f"<title>{escape(station.name)}, {YEAR}</title>",
            f'<meta name="description" content="Every hour of {YEAR} at {escape(station.name)}, on one page.">',
            "",
            f"<h1>{escape(station.name)}, {YEAR}</h1>",
            "<p>Every hour of the year. Whoever scrolls to the end has earned a bowl of soup.</p>",
            *(part for month in range(1, 13) for part in _month(station, month)),
        ]
    )


def _month(station: Station, month: int) -> Iterator[str]:
    yield f'<h2 id="m{month:02}">{_MONTHS[month - 1]}</h2>'
    yield "<table><thead><tr><th>Hour (UTC)</th><th>Level (cm)</th><th>The water</th></tr></thead><tbody>"
    at = datetime(YEAR, month, 1, tzinfo=timezone.utc)
    before = station.level(at - timedelta(hours=1))
    while at.month == month:
        level = station.level(at)
        runs = "rises" if level > before + 3 else "falls" if level < before - 3 else "stands"
        yield (
            f'<tr id="h{at:%m%d%H}"><td><time datetime="{at:%Y-%m-%dT%H:00Z}">{at.day} {_MONTHS[month - 1]}, {at:%H:00}'
            f"</time></td><td>{level}</td><td>{runs}</td></tr>"
        )
        before, at = level, at + timedelta(hours=1)
    yield "</tbody></table>"


def _hydrograph(station: Station, levels: list[int]) -> str:
    low, high = min(levels) - 5, max(*levels, station.warning_cm)
    points = " ".join(f"{n * 12},{100 - round(100 * (level - low) / (high - low))}" for n, level in enumerate(levels))
    return (
        f'<figure><svg role="img" viewBox="0 0 280 100" width="560" height="200"><title>The last day at '
        f'{escape(station.name)}</title><polyline fill="none" stroke="#26a" points="{points}"/></svg></figure>'
    )


@cache
def _storms(year: int) -> list[tuple[float, float]]:
    """Return the start of each rainfall, in hours since the epoch, and its amount as a share of the normal level."""
    dice = random.Random(f"storms of {year}")  # noqa: S311 - weather, no secret
    first = (datetime(year, 1, 1, tzinfo=timezone.utc) - _EPOCH).total_seconds() / 3600
    return [(first + dice.uniform(0, 8766), dice.betavariate(1.2, 5) * 0.9) for _ in range(_STORMS_A_YEAR)]


def _pulse(hours: float) -> float:
    """Return the share of a storm's water that passes at this number of hours after its start."""
    if not 0 <= hours <= _FORGOTTEN_H:
        return 0.0
    return hours / _RISE_H if hours < _RISE_H else math.exp(-(hours - _RISE_H) / _FALL_H)

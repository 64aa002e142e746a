"""The documents against the code: nights of a clock change as drawn and tabled, states and reasons, links, names."""

import re
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from crtrd.cli import main as cli
from crtrd.core.cron import State
from crtrd.core.occurrence import MOVES, SETTLED, Reason
from crtrd.schedule.spans import parse_instant
from crtrd.schedule.spec import compile_schedule
from crtrd.schedule.zone import SECOND

PROJECT = Path(__file__).parents[1]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")])
SCHEDULES = (PROJECT / "docs/schedules.md").read_text(encoding="utf-8")
BERLIN = ZoneInfo("Europe/Berlin")
NIGHTS = {"29 March 2026": "2026-03-29", "25 October 2026": "2026-10-25"}
HOURS, STEP = 2, 600  # what is drawn: two hours from midnight UTC, a place for each ten minutes


def served(text, date, policy):
    """Instants of one night as minutes after midnight UTC, by the code."""
    key = "dst_gap" if date == NIGHTS["29 March 2026"] else "dst_overlap"
    schedule = compile_schedule([text], timezone="Europe/Berlin", **{key: policy})
    midnight = parse_instant(f"{date}T00:00Z", "UTC")
    found, instant = [], schedule.next_after(midnight - 1)
    while instant is not None and instant < midnight + HOURS * 3600 * SECOND:
        found.append((instant - midnight) // (60 * SECOND))
        instant = schedule.next_after(instant)
    return found


def clock(date, minute):
    return parse_instant(f"{date}T00:00Z", "UTC") // SECOND + minute * 60


def local(date, minute):
    return datetime.fromtimestamp(clock(date, minute), BERLIN).strftime("%H:%M")


def tables():
    """(date, schedule, policy, cell, the cell of the first column) of both tables."""
    for night, date in NIGHTS.items():
        section = SCHEDULES[SCHEDULES.index(f"Europe/Berlin, {night}, ") :].split("\n\n")[1]
        header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
        for text, *cells in rows:
            for policy, cell in zip(header[1:], cells, strict=True):
                yield date, re.match("`(.*?)`", text)[1], policy.strip("`"), cell, cells[0]


@pytest.mark.parametrize(("date", "text", "policy", "cell", "usual"), list(tables()))
def test_the_table_of_a_night_says_what_the_code_does(date, text, policy, cell, usual):
    told = usual if cell == "the same" else cell
    minutes = [int(hour) * 60 + int(minute) for hour, minute in re.findall(r"(\d\d):(\d\d)Z", told)]
    assert minutes == served(text, date, policy)
    shown = re.findall(r"(\d\d):(\d\d)Z \((\d\d:\d\d)\)", told)
    assert all(local(date, int(hour) * 60 + int(minute)) == there for hour, minute, there in shown)


def drawn(date, rows):
    """The picture of a night: clocks above, a mark for each instant."""
    places = HOURS * 3600 // STEP
    hours = list(range(0, HOURS * 60, 30))
    head = ["".join(f"{text:<6}" for text in each) for each in (
        [f"{minute // 60:02}:{minute % 60:02}" for minute in hours], [local(date, minute) for minute in hours])]
    lines = [f"    {'UTC':<23}{head[0]}".rstrip(), f"    {'Berlin':<23}{head[1]}".rstrip()]
    for text, policy in rows:
        marks = {minute * 60 // STEP for minute in served(text, date, policy)}
        track = " ".join("●" if place in marks else "·" for place in range(places))
        lines.append(f"    {text:<14}{policy:<9}{track}")
    return "\n".join(lines)


DRAWN = {
    "29 March 2026": [("30 2 * * *", each) for each in ("auto", "skip", "after")] + [
        ("*/20 2 * * *", "auto"), ("*/20 2 * * *", "after"), ("30 * * * *", "auto"), ("30 * * * *", "after"),
        ("*/10 * * * *", "auto")],
    "25 October 2026": [("30 2 * * *", each) for each in ("auto", "first", "second", "both")] + [
        ("30 * * * *", "auto"), ("30 * * * *", "first"), ("*/10 * * * *", "auto"), ("*/10 * * * *", "first")],
}


@pytest.mark.parametrize("night", NIGHTS)
def test_the_drawing_of_a_night_is_what_the_code_does(night):
    assert drawn(NIGHTS[night], DRAWN[night]) in SCHEDULES


def section_of(title):
    page = (PROJECT / "docs/concepts.md").read_text(encoding="utf-8")
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_states_are_those_of_the_code():
    section = section_of("States of an occurrence")
    rows = re.findall(r"^\| `(\w+)` \| ((?:`[\w-]+` ?)+) \|$", section, flags=re.MULTILINE)
    told = {start: set(re.findall("`(.*?)`", ends)) for start, ends in rows}
    assert told == {str(start): set(map(str, ends)) for start, ends in MOVES.items() if start not in SETTLED}
    states = re.findall(r"^\| `(\w+)` \|", section_of("States of a cron"), flags=re.MULTILINE)
    assert states == [str(each) for each in State]


def test_every_reason_is_told():
    first = re.findall(r"^\| ((?:`[\w-]+` ?)+) \|", section_of("Reasons"), flags=re.MULTILINE)
    assert sorted(re.findall("`(.*?)`", " ".join(first))) == sorted(str(each) for each in Reason if each)


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```|^    .*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_that_a_page_names_are_there(page):
    named = re.findall(r"`?crtrctl ((?:--[\w=-]+ )*)([a-z][a-z-]+)", page.read_text(encoding="utf-8"))
    ours = {*cli.VERBS, "help"}
    wrong = [verb for _, verb in named if verb not in ours and not verb.startswith("passes")]
    assert wrong == []

"""What a trace of events must hold for Perfetto to take all of it, as its importer and the published format demand.

Perfetto drops or moves what breaks these rules, or refuses the file. Slices are formed here as it forms them: events by
time, those of one time in the order of the file; an end ends the innermost slice of its thread that has its name.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DEEPEST = 512
"""Slices within slices; deeper ones are dropped."""

LARGEST = 2**32 - 1
"""Of a process or thread; a larger number counts as 0."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Slice:
    """A slice as Perfetto shows it; times in nanoseconds."""

    pid: int
    tid: int
    name: str
    start: int
    length: int
    depth: int


def broken(text: str) -> list[str]:
    """What is wrong with a trace, in words."""
    found = list(_of_text(text))
    try:
        events = json.loads(text)["traceEvents"]
    except (ValueError, KeyError, TypeError) as error:
        return [*found, f"no trace: {error}"]
    for number, event in enumerate(events):
        found += [f"event {number}, {event}: {what}" for what in _of_event(event)]
    return found or [*_of_names(events), *_of_slices(events)]


def _of_text(text: str) -> Iterator[str]:
    if not text.startswith('{"'):
        yield "it does not begin as a trace"
    if re.search(r"(?<!\\)(\\\\)*\\u[dD][89a-fA-F]", text):
        yield "an escaped surrogate: the file is refused"
    if re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text):
        yield "a control character as it is: the file is refused"


def _of_event(event: Event) -> Iterator[str]:
    for field in ("pid", "tid"):
        if type(event.get(field)) is not int or not 0 < event[field] <= LARGEST:
            yield f"{field} is no number of one"
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield "it has no name"
    if "cat" in event and not (isinstance(event["cat"], str) and event["cat"]):
        yield "its category is no text"
    phase, args = event.get("ph"), event.get("args")
    if phase not in tuple("BECM"):
        yield "its phase is none of those that are written"
    if phase != "M":
        time = event.get("ts")
        if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < 2**63 / 1000:
            yield "ts is no time"
        elif abs(time * 1000 - round(time * 1000)) > 1e-3 * max(1.0, time * 1e-6):
            yield "ts is no whole number of nanoseconds"
    if phase in ("C", "M") and not (isinstance(args, dict) and args):
        yield "it has no args"
    elif phase == "C" and not all(type(value) in (int, float) for value in args.values()):
        yield "a counter that is no number"
    elif phase == "M":
        key, kind = ("name", str) if event["name"].endswith("_name") else ("sort_index", int)
        if event["name"] not in ("process_name", "thread_name", "process_sort_index", "thread_sort_index"):
            yield "metadata that nothing reads"
        elif type(args.get(key)) is not kind or args[key] == "":
            yield f"metadata without {key}"


def _of_names(events: list[Event]) -> Iterator[str]:
    """Every thread with events has a name, and no other thread comes to be."""
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    for place in sorted({(e["pid"], e["tid"]) for e in events}):
        if place not in named or place[0] not in processes:
            yield f"process and thread {place} have no names"
    for tid, count in _counted(tid for _, tid in named).items():
        if count > 1:
            yield f"thread {tid} is of {count} processes: numbers of threads are the whole computer's"


def _counted(items: Iterator[int]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for item in items:
        found[item] += 1
    return found


def _of_slices(events: list[Event]) -> Iterator[str]:
    open_: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in sorted((e for e in events if e["ph"] in "BE"), key=lambda e: e["ts"]):
        stack = open_[event["pid"], event["tid"]]
        if event["ph"] == "B":
            stack.append(event)
            if len(stack) > DEEPEST:
                yield f"deeper than {DEEPEST}: {event}"
        elif not stack:
            yield f"an end without a begin: {event}"
        elif stack.pop()["name"] != event["name"]:
            yield f"an end of what is not innermost: {event}"
    for stack in open_.values():
        yield from (f"never ends: {event}" for event in stack)


def slices(text: str) -> list[Slice]:
    """The slices of a trace of which nothing is ``broken``."""
    found, open_ = [], defaultdict(list)
    events = (e for e in json.loads(text)["traceEvents"] if e["ph"] in "BE")
    for event in sorted(events, key=lambda e: e["ts"]):
        stack = open_[event["pid"], event["tid"]]
        if event["ph"] == "B":
            stack.append(event)
            continue
        begun = stack.pop()
        start, stop = (round(e["ts"] * 1000) for e in (begun, event))
        found.append(Slice(event["pid"], event["tid"], begun["name"], start, stop - start, len(stack)))
    return found

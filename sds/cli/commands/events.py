"""``sds events``: what happened in the home, why, and the numbers behind it."""

from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.options import AsJson

if TYPE_CHECKING:
    from sds.catalog.records import EventRecord

_FIRST = 20


def events(
    *,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=10_000, help="Show the last N events."),
    ] = _FIRST,
    as_json: AsJson = False,
) -> None:
    """Show what happened last, and why: replicas planned, built, proven, reverted or retired.

    The newest event comes last.
    """
    from sds.cli.output import print_json, print_lines
    from sds.home import default_home
    from sds.server.remote_service import connect

    with connect(default_home()) as service:
        found = service.events(limit)
    if as_json:
        print_json({"events": found})
        return
    if not found:
        print_lines("nothing has happened yet")
        return
    print_lines(*(_line(event) for event in reversed(found)))


def _line(event: "EventRecord") -> str:
    """Return an event on one line: when, to what, and why."""
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(event.time_ns / 1e9, UTC).isoformat(" ", "seconds")[:-6]
    number = "" if event.subject_id is None else f" {event.subject_id}"
    return f"{when}  {event.subject}{number} {event.kind}: {event.reason}"

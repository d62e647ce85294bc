"""``sds status``: how the installation stands."""

from typing import TYPE_CHECKING

from sds.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sds.server.operations.reports import Status


def status(*, as_json: AsJson = False) -> None:
    """Show the server, what was traced, and which replicas serve reads."""
    from sds.cli.output import note, print_fields, print_json, print_lines
    from sds.cli.quantities import format_seconds, format_size
    from sds.home import default_home
    from sds.server.remote_service import connect
    from sds.text import counted

    with connect(default_home()) as service:
        found = service.status()
    if as_json:
        print_json(found)
        return
    server = "not running" if found.server is None else f"{found.server} (pid {found.server_pid})"
    traced = (
        f"{counted(found.reads, 'read')} of {counted(found.datasets, 'dataset')}, "
        f"{format_seconds(found.elapsed_s)}, "
        f"of it {format_seconds(found.time_lost_s)} lost to the layout"
    )
    spool = (
        f"{counted(found.spool_files, 'file')}, {format_size(found.spool_pending_bytes)} to ingest"
    )
    replicas = f"{_counts(found.replicas)}, {format_size(found.replica_bytes)}"
    if found.tiles:
        replicas += f"; {counted(found.tiles, 'tile')} in segments"
    print_fields(
        (
            ("version", found.version),
            ("home", found.home),
            ("server", server),
            ("connector", "enabled" if found.enabled else "disabled by SDS_HOME/disabled"),
            ("traced", traced),
            ("spool", spool),
            ("replicas", replicas),
            ("jobs", _counts(found.jobs)),
            ("mode", _mode(found)),
            ("calibrated", ", ".join(found.calibrated) or "no file system"),
        )
    )
    if found.mode == "observe" and found.advice is not None and found.advice.commands:
        print_lines("advised", *(f"    {command}" for command in found.advice.commands))
    for problem in found.problems:
        note(problem)


def _mode(found: "Status") -> str:
    """Return the mode of the evaluator, and what it found last."""
    import time

    from sds.cli.quantities import format_seconds
    from sds.text import counted

    advice = found.advice
    if advice is None:
        return found.mode
    age = format_seconds((time.time_ns() - advice.found_ns) * 1e-9)
    if not advice.n_layouts:
        return f"{found.mode}; no further replica would pay ({age} ago)"
    return (
        f"{found.mode}; {counted(advice.n_layouts, 'further replica')} would save "
        f"{format_seconds(advice.saves_s)} a day (predicted, {age} ago)"
    )


def _counts(counts: "Mapping[str, int]") -> str:
    """Return how many there are of each state."""
    return ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "none"

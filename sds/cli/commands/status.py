"""``sds status``: how the installation stands."""

from typing import TYPE_CHECKING

from sds.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping


def status(*, as_json: AsJson = False) -> None:
    """Show the server, what was traced, and which replicas serve reads."""
    from sds.cli.output import note, print_fields, print_json
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
            ("calibrated", ", ".join(found.calibrated) or "no file system"),
        )
    )
    for problem in found.problems:
        note(problem)


def _counts(counts: "Mapping[str, int]") -> str:
    """Return how many there are of each state."""
    return ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "none"

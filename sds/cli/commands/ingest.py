"""``sds ingest``: count what the spool holds."""

from sds.cli.options import AsJson


def ingest(*, as_json: AsJson = False) -> None:
    """Read the traces that programs left in the spool and find the patterns in them.

    A running server does this by itself every few seconds. Each read is counted once.
    """
    from sds.cli.output import note, print_json, print_lines
    from sds.cli.quantities import format_count, format_size
    from sds.home import default_home
    from sds.redirect.launch.untraced import untraced_sentences
    from sds.server.remote_service import connect
    from sds.text import counted

    home = default_home()
    with connect(home) as service:
        report = service.ingest()
    for problem in report.problems:
        note(problem)
    if as_json:
        print_json(report)
        return
    for sentence in untraced_sentences(home.spool):
        note(sentence)
    print_lines(
        f"{counted(report.reads, 'new read')} of {format_size(report.bytes_read)} "
        f"in {counted(report.files, 'trace')}"
    )
    if report.dropped_reads:
        note(f"{format_count(report.dropped_reads)} reads were not recorded: the trace was full")

"""``sds replicas``: list, show, verify, pin and remove replicas."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.command_classes import Command, Group
from sds.cli.exit_codes import ExitCode
from sds.cli.names import split_name
from sds.cli.options import AsJson, OptionalName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.catalog.replica_records import ReplicaRecord
    from sds.hdf5.identity import FileIdentity
    from sds.home import Home
    from sds.redirect.tables import RedirectTable, TableCandidate, TableDataset
    from sds.server.operations.savings import ReplicaSavings
    from sds.server.operations.service import Service

app = typer.Typer(
    help="List, show, verify, pin and remove replicas.", cls=Group, invoke_without_command=True
)

_All = Annotated[bool, typer.Option("--all", help="Also those that no longer serve reads.")]
_Limit = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=1000, help="List at most N replicas; 0: all of them."),
]
_FIRST = 100
_LAST_ID = 2**63 - 1  # of an integer in SQLite
_Which = Annotated[
    str, typer.Argument(metavar="REPLICA", help="Its number, its file, or FILE:/DATASET.")
]


@app.callback()
def replicas(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List, show, verify, pin and remove replicas; alone, list them."""
    if context.invoked_subcommand is None:
        list_replicas(None, every_state=False, limit=_FIRST, as_json=as_json)


@app.command("list", cls=Command)
def list_replicas(
    name: OptionalName = None,
    *,
    every_state: _All = False,
    limit: _Limit = _FIRST,
    as_json: AsJson = False,
) -> None:
    """List replicas, their state and what they take."""
    from sds.cli.output import print_json, print_lines
    from sds.home import default_home
    from sds.server.remote_service import connect

    file, dataset = (None, None) if name is None else split_name(name)
    with connect(default_home()) as service:
        if as_json or not limit:
            found = service.replicas(file, dataset, all_states=every_state)
            total = len(found)
        else:
            page = service.replica_page(file, dataset, all_states=every_state, limit=limit)
            found, total = page.replicas, page.total
    if as_json:
        print_json({"replicas": found})
        return
    if not found:
        print_lines("no replicas")
        return
    _print_replicas(found)
    if len(found) < total:
        print_lines(
            f"the oldest {len(found)} of {total} replicas; --limit 0 lists all, "
            "FILE[:/DATASET] those of one"
        )


@app.command(cls=Command)
def show(which: _Which, *, as_json: AsJson = False) -> None:
    """Show all that is known of replicas: what they hold, how and where, and what they saved.

    What they saved is measured: their traced reads against reads of the same kind from the
    original, by medians. Traces that wait are counted first.
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from sds.cli.commands.advise import count_traces
    from sds.cli.output import print_fields, print_json, print_lines
    from sds.cli.quantities import describe_order, format_layout, format_seconds, format_size
    from sds.home import default_home
    from sds.server.remote_service import connect

    with connect(default_home()) as service:
        count_traces(service)
        found = _find(service, which)
        savings: dict[int, ReplicaSavings] = {}
        for file, dataset in dict.fromkeys((one.file, one.dataset) for one in found):
            of_all = service.savings(file, dataset).replicas
            savings |= {one.replica.id: one for one in of_all}
    if as_json:
        measured = [
            {
                "id": number,
                **asdict(one.gain),
                "saved_s_per_day": one.saved_s_per_day,
                "paid_back_in_days": one.paid_back_in_days,
            }
            for number, one in savings.items()
            if number in {replica.id for replica in found}
        ]
        print_json({"replicas": found, "measured": measured})
        return
    for number, replica in enumerate(found):
        if number:
            print_lines("")
        built = replica.replica
        created = datetime.fromtimestamp(replica.created_ns / 1e9, UTC)
        fields = [
            ("replica", f"{replica.id}, {replica.state}"),
            ("reason", replica.reason),
            ("of", f"{replica.file}:{replica.dataset}"),
            ("order", describe_order(replica)),
            *format_layout(replica),
            ("file", replica.path),
            ("size", format_size(replica.size_bytes)),
            ("begun", created.isoformat(timespec="seconds")),
            ("took", format_seconds(replica.build_s)),
        ]
        if built is not None and built.decode_s_per_byte:
            fields.append(("decoding", f"{format_size(1 / built.decode_s_per_byte)}/s"))
        if built is not None and built.left_out:
            fields.append(("left out", ", ".join(built.left_out)))
        if replica.sort is None:  # else it serves no reads, and mode auto leaves it
            fields.append(("pinned", "yes" if replica.pinned else "no: mode auto may remove it"))
            fields += _gain_fields(savings.get(replica.id))
        print_fields(fields)


def _gain_fields(one: "ReplicaSavings | None") -> list[tuple[str, str]]:
    """Return what a replica served, what that saved, and whether its build is paid back."""
    from sds.cli.quantities import format_days, format_seconds
    from sds.text import counted

    if one is None or not one.gain.n:
        return [("served", "no read yet")]
    gain = one.gain
    fields = [("served", f"{counted(gain.n, 'read')} in {format_seconds(gain.total_s)}")]
    if gain.saved_s is None or gain.saved_low_s is None or gain.saved_high_s is None:
        return [*fields, ("saved", "not known: no read of the same kind from the original")]
    saved = format_seconds(abs(gain.saved_s))
    interval = f"{format_seconds(gain.saved_low_s)} to {format_seconds(gain.saved_high_s)}"
    lost = "" if gain.saved_s >= 0 else "nothing: "
    said = f"{lost}{saved}{' lost' if lost else ''} (measured; saved {interval} in 19 of 20 cases)"
    if gain.n_compared < gain.n:
        said += f", by the {counted(gain.n_compared, 'read')} that can be compared"
    fields.append(("saved", said))
    predicted = one.replica.predicted_saving_s_per_read
    said = "" if predicted is None else f"; {format_seconds(predicted)} predicted"
    fields.append(("per read", f"{format_seconds(gain.saved_s_per_read)} (measured){said}"))
    if one.saved_s_per_day is not None:
        fields.append(("per day", f"{format_seconds(one.saved_s_per_day)} (measured)"))
    if one.paid_back_in_days is not None:
        days = one.paid_back_in_days
        fields.append(("paid back", f"in {format_days(days)}" if days else "yes"))
    return fields


@app.command(cls=Command)
def verify(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="REPLICA", help="Its number, its file, or FILE:/DATASET; all if not given."
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Read replicas whole and compare them with their checksums.

    A damaged one serves no read from then on; programs read the original. Ends with status 4
    where damage was found, and with 1 where a replica or its source does not answer.
    """
    from sds.cli.output import print_json, print_lines, progress_bar
    from sds.home import default_home
    from sds.server.remote_service import connect
    from sds.text import counted

    with connect(default_home()) as service, progress_bar("Verifying") as advance:
        if which is None:
            checks = service.verify(None, progress=advance).checks
        else:
            chosen = _find(service, which)
            checks = tuple(
                check
                for replica in chosen
                for check in service.verify(replica.id, progress=advance).checks
            )
    verified = [check for check in checks if check.verified]
    damaged = [check for check in verified if not check.ok]
    n_left = len(checks) - len(verified)
    if as_json:
        print_json({"ok": all(check.ok for check in checks), "checks": checks})
    else:
        print_lines(
            *(
                f"replica {check.replica.id}: {'ok' if check.ok else check.problem}"
                for check in checks
            ),
            f"{counted(len(verified), 'replica')} verified, {len(damaged)} damaged"
            + (f", {n_left} not verified" if n_left else ""),
        )
    if damaged:
        raise typer.Exit(ExitCode.DAMAGED)
    if n_left:
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=Command)
def pin(which: _Which, *, as_json: AsJson = False) -> None:
    """Keep replicas that mode auto built, whatever else would save more in their room.

    Replicas that were asked for by name are pinned from the start.
    """
    _set_pinned(which, pinned=True, as_json=as_json)


@app.command(cls=Command)
def unpin(which: _Which, *, as_json: AsJson = False) -> None:
    """Let mode auto remove replicas that nothing reads any more, or to make room for others."""
    _set_pinned(which, pinned=False, as_json=as_json)


def _set_pinned(which: str, *, pinned: bool, as_json: bool) -> None:
    from sds.cli.output import print_json, print_lines
    from sds.home import default_home
    from sds.server.remote_service import connect

    with connect(default_home()) as service:
        set_it = service.pin if pinned else service.unpin
        found = [set_it(replica.id) for replica in _find(service, which)]
    if as_json:
        print_json({"replicas": found})
        return
    said = "pinned" if pinned else "not pinned: mode auto may remove it"
    print_lines(*(f"replica {one.id} is {said}" for one in found))


@app.command(cls=Command)
def remove(which: _Which, *, as_json: AsJson = False) -> None:
    """Withdraw a replica and delete its file; programs read the original again."""
    from sds.cli.output import print_json, print_lines
    from sds.errors import InsufficientSpaceError
    from sds.home import default_home

    home = default_home()
    try:
        chosen, removed = _remove(home, which)
    except InsufficientSpaceError:
        # The catalog has no room to note that a replica is gone: the replica's own is enough.
        if not _free(home, which):
            raise
        chosen, removed = _remove(home, which)
    if as_json:
        print_json({"replicas": removed})
        return
    print_lines(
        *(
            f"replica {after.id} removed: {after.path}"
            if before.state not in {"retired", "reverted"}
            else f"replica {after.id} was gone already ({after.reason}): {after.path}"
            for before, after in zip(chosen, removed, strict=True)
        )
    )


def _remove(
    home: "Home", which: str
) -> "tuple[tuple[ReplicaRecord, ...], tuple[ReplicaRecord, ...]]":
    """Remove replicas; return them as they were and as they are."""
    from sds.server.remote_service import connect

    with connect(home) as service:
        chosen = _find(service, which)
        return chosen, tuple(service.remove(replica.id) for replica in chosen)


def _free(home: "Home", which: str) -> bool:
    """Withdraw what redirect tables say of replicas, and delete those in the home.

    Returns
    -------
    Whether there were any.
    """
    from sds.files import canonical_path
    from sds.redirect.tables import withdraw_naming

    file, dataset = split_name(which)

    def is_chosen(
        table: "RedirectTable", known: "TableDataset", candidate: "TableCandidate"
    ) -> bool:
        return (
            which == str(candidate.replica_id)
            or canonical_path(which) == str(candidate.path)
            or (file == str(table.source_path) and dataset in {None, known.path})
        )

    inside = [path for path in withdraw_naming(home, is_chosen) if home.holds_replica(path)]
    for path in inside:
        path.unlink(missing_ok=True)
    return bool(inside)


def _find(service: "Service", which: str) -> "tuple[ReplicaRecord, ...]":
    """Return the replicas that a number, a replica file or FILE[:/DATASET] names.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    from sds.errors import NotFoundError
    from sds.files import canonical_path

    found: tuple[ReplicaRecord, ...] = ()
    if which.isascii() and which.isdigit():
        if 1 <= int(which) <= _LAST_ID:
            with suppress(NotFoundError):
                found = (service.replica(int(which)),)
    else:
        found = service.replicas(path=canonical_path(which), all_states=True)
        if not found:
            file, dataset = split_name(which)
            found = service.replicas(file, dataset)
    if not found:
        message = f"no replica {which!r}; `sds replicas list --all` shows those that there are"
        raise NotFoundError(message)
    return found


def _print_replicas(found: "Sequence[ReplicaRecord]") -> None:
    """Print one line per replica below its dataset, and where each lies."""
    from itertools import groupby

    from sds.cli.output import print_lines, print_prose, print_table
    from sds.cli.quantities import describe_order, describe_region, describe_storage, format_size

    def source(replica: "ReplicaRecord") -> str:
        return f"{replica.file}:{replica.dataset}"

    for name, group in groupby(sorted(found, key=lambda one: (source(one), one.id)), key=source):
        replicas = list(group)
        print_lines(name)
        print_table(
            ("id>", "state", "order", "storage", "region", "size>"),
            [
                (
                    str(replica.id),
                    replica.state,
                    describe_order(replica),
                    describe_storage(replica),
                    describe_region(replica),
                    format_size(
                        replica.size_bytes if replica.stored_bytes is None else replica.stored_bytes
                    ),
                )
                for replica in replicas
            ],
        )
        # Below the table: paths are longer than terminals are wide, and are to be copied whole.
        print_lines(*(f"{replica.id:>3}   {replica.path}" for replica in replicas), "")
    for replica in found:
        if replica.state not in {"active", "building"} and replica.reason:
            print_prose(f"replica {replica.id} is {replica.state}: {replica.reason}")
    for sentence in _of_changed_sources(found):
        print_prose(sentence)


def _of_changed_sources(found: "Sequence[ReplicaRecord]") -> list[str]:
    """Return a sentence for each replica that counts as active, but whose source is another now."""
    from functools import partial

    from sds.catalog.records import LIVE_STATES
    from sds.errors import SdsError
    from sds.hdf5.identity import identity_of
    from sds.mounts import look_at
    from sds.redirect.doctor.table_checks import OF_CHANGED_SOURCE

    sentences = []
    identities: dict[str, FileIdentity | str] = {}
    for replica in found:
        if replica.state not in LIVE_STATES:
            continue
        file = replica.file
        if file not in identities:
            try:
                identities[file] = look_at(file, partial(identity_of, file))
            except SdsError as error:
                identities[file] = str(error)
        now = identities[file]
        changed = now if isinstance(now, str) else replica.source_identity.difference(now)
        if changed:
            sentences.append(
                f"replica {replica.id} serves no read: {file} is not what was copied ({changed}); "
                f"{OF_CHANGED_SOURCE}"
            )
    return sentences

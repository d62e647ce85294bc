"""``sds query``: the rows of a table for which a condition holds."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sds.cli.names import check_output
from sds.cli.options import AsJson

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TERMINAL_ROWS = 50


def query(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE:/TABLE",
            help="A group of equally long datasets, or a compound dataset; run.h5:/particles.",
        ),
    ],
    condition: Annotated[
        str,
        typer.Argument(
            metavar="CONDITION", help="For example 'energy > 1.3 and (x < 0 or x >= 10)'."
        ),
    ],
    *,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Of the rows, these columns: energy,x; else all."),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            metavar="ORDER", help="row: as in the file; key: by the first column of the condition."
        ),
    ] = "row",
    strategy: Annotated[
        str,
        typer.Option(
            metavar="STRATEGY",
            help="auto; to compare with: scan (the original), sorted (a sorted replica).",
        ),
    ] = "auto",
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS",
            help=f"Most rows to print; if not given {_TERMINAL_ROWS} on a terminal, else all.",
            min=0,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the rows to this new file, .npy or .h5, and print none."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of a table for which a condition holds, or write them to a file.

    They come from a replica sorted by a column of the condition where that is predicted to be
    faster (sds reorganize --sort), else from a scan of the file. The rows are the same.

    Example: sds query run.h5:/particles 'energy > 1.3' --columns energy,x --output hot.npy
    """
    from sds.cli.output import print_json, print_lines
    from sds.hdf5.dataset import parse_dataset_name
    from sds.queries.column_names import parse_columns
    from sds.queries.query import query as query_rows
    from sds.text import counted

    file, table = parse_dataset_name(name)
    if output is not None:
        check_output(output, suffixes=(".npy", ".h5"))
    found = query_rows(
        file,
        condition,
        table=table,
        columns=None if columns is None else parse_columns(columns),
        order=order,  # type: ignore[arg-type]  # what it may be is checked there
        strategy=strategy,  # type: ignore[arg-type]
    )
    if output is not None:
        _write(output, found)
        if not as_json:
            print_lines(f"{counted(len(found), 'row')} written to {output}")
    n_shown = len(found) if limit is None else limit
    if limit is None and sys.stdout.isatty():
        n_shown = _TERMINAL_ROWS
    if as_json:
        answer: dict[str, object] = {"n_rows": len(found), "columns": found.dtype.names}
        answer |= {"output": str(output)} if output else {"rows": _as_json(found[:n_shown])}
        print_json(answer)
    elif output is None:
        _print(found, n_shown)


def _write(output: Path, found: "NDArray[np.void]") -> None:
    """Write rows to a new file; one that cannot be finished is removed, what was there is not."""
    from sds.errors import UnsupportedError

    check_output(output)
    output.touch(exist_ok=False)
    try:
        _fill(output, found)
    except (ValueError, TypeError) as error:
        output.unlink(missing_ok=True)
        message = f"rows of type {found.dtype} cannot be written to {output} ({error})"
        raise UnsupportedError(f"{message}: leave columns out, or write .h5") from error
    except BaseException:  # a full disk, Ctrl-C
        output.unlink(missing_ok=True)
        raise


def _fill(output: Path, found: "NDArray[np.void]") -> None:
    import h5py
    import numpy as np

    if output.suffix.lower() == ".h5":
        with h5py.File(output, "w") as file:
            file["rows"] = found
    else:
        # h5py's notes on types (encodings, enumerations) have no place in .npy: the values do.
        with output.open("wb") as stream, warnings.catch_warnings(action="ignore"):
            np.save(stream, found, allow_pickle=False)


def _print(found: "NDArray[np.void]", n_shown: int) -> None:
    """Print rows: as a table on a terminal, else with tabs between the columns."""
    from sds.cli.output import print_table, write_lines
    from sds.text import printable

    rows = [[printable(_text(value)) for value in row] for row in found[:n_shown]]
    names = found.dtype.names or ()
    if sys.stdout.isatty():
        print_table([f"{name}>" for name in names], rows)
    else:
        write_lines("\t".join(map(printable, names)), *("\t".join(row) for row in rows))
    if len(found) > n_shown:
        sys.stderr.write(f"sds: {n_shown} of {len(found)} rows shown; --limit shows more\n")


def _as_json(found: "NDArray[np.void]") -> list[list[Any]]:
    """Return rows as values that JSON knows; numbers that are not finite are null.

    Raises
    ------
    UnsupportedError
        If a column holds references, which mean nothing outside of the file.
    """
    from sds.errors import UnsupportedError

    names = found.dtype.names or ()
    without = [name for name in names if _holds_references(found.dtype[name])]
    if without:
        message = f"{', '.join(without)} cannot be written as JSON (references)"
        raise UnsupportedError(f"{message}: leave out such columns, by --columns")
    return [[_finite(_plain(value)) for value in row] for row in found]


def _holds_references(dtype: "np.dtype[Any]") -> bool:
    import h5py

    if dtype.names:
        return any(_holds_references(dtype[name]) for name in dtype.names)
    inner = dtype.base if dtype.subdtype else h5py.check_vlen_dtype(dtype)
    if inner is not None:
        return _holds_references(inner)
    return h5py.check_ref_dtype(dtype) is not None


def _plain(value: Any) -> Any:  # noqa: ANN401  (an element of any type)
    """Return an element as Python has it."""
    import numpy as np

    if isinstance(value, np.void):
        names = value.dtype.names
        return [_plain(value[name]) for name in names] if names else value.tobytes().hex()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc":
            return value.tolist()
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biu" else value


def _text(value: Any) -> str:  # noqa: ANN401
    """Return an element for reading: members in parentheses, elements of arrays in brackets."""
    import numpy as np

    if isinstance(value, np.void) and value.dtype.names:
        return f"({', '.join(_text(value[name]) for name in value.dtype.names)})"
    if isinstance(value, np.ndarray):
        return f"[{', '.join(_text(part) for part in value)}]" if value.ndim else _text(value[()])
    return str(_plain(value))


def _finite(value: Any) -> Any:  # noqa: ANN401
    import math

    import numpy as np

    if isinstance(value, list):
        return [_finite(part) for part in value]
    if isinstance(value, (complex, np.complexfloating)):
        return [_finite(value.real), _finite(value.imag)]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value

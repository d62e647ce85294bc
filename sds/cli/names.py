"""Files and datasets as they are named on the command line."""

from __future__ import annotations

import os
from pathlib import Path

from sds.files import canonical_path, path_error, read_regular


def split_name(name: str) -> tuple[str, str | None]:
    """Return the file and the dataset of ``FILE[:/DATASET]``; a file that exists is one."""
    from sds.hdf5.dataset import parse_dataset_name

    if ":/" not in name[1:] or Path(name).exists():
        return canonical_path(name), None
    file, dataset = parse_dataset_name(name)
    return canonical_path(file), dataset


def check_place(output: Path) -> None:
    """Raise an error unless a file may lie there.

    Raises
    ------
    FileMissingError
        If there is no such directory.
    SdsValueError
        If SDS keeps its own files there.
    """
    from sds.errors import FileMissingError
    from sds.home import default_home

    default_home().refuse_own(output)
    if not output.parent.is_dir():
        message = f"no such directory: {output.parent}; make it, or name another for {output.name}"
        raise FileMissingError(message)


def check_output(
    output: Path, *, suffixes: tuple[str, ...] = (), force: bool | None = None
) -> None:
    """Raise an error unless a file may be written there.

    Parameters
    ----------
    suffixes
        In which its name may end, in small letters; any where there are none.
    force
        Whether it may replace a file; None: the command replaces none.

    Raises
    ------
    FileMissingError, PermissionDeniedError
        If there is no such directory, or it may not be written.
    SdsValueError
        If it must not have that name, something is there, or SDS keeps its own files there.
    """
    from sds.errors import PermissionDeniedError, SdsValueError

    if suffixes and output.suffix.lower() not in suffixes:
        message = (
            f"{output} ends in {output.suffix or 'no suffix'!r}: name a file that ends in "
            f"{' or '.join(suffixes)}"
        )
        raise SdsValueError(message)
    check_place(output)
    if os.path.lexists(output) and not force:
        remedy = "remove it first" if force is None else "replace it with --force"
        raise SdsValueError(f"{output} exists: name another file, or {remedy}")
    if output.exists() and not output.is_file():
        raise SdsValueError(f"{output} is no regular file: name another")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise PermissionDeniedError(f"may not write into {output.parent}: name another directory")


def write_output(output: Path, content: bytes, *, force: bool) -> None:
    """Write a file whole or not at all; its mode is that of any file that a program makes.

    Errors as of `check_output`: much time may have passed since.
    """
    from sds.atomic_file import replace_whole

    check_output(output, force=force)
    output = output.resolve()  # a link stays one
    if not force:
        output.touch(exist_ok=False)  # unlike a rename, replaces nothing
    try:
        replace_whole(output, content)
    except BaseException:
        if not force:
            output.unlink(missing_ok=True)
        raise
    umask = os.umask(0)
    os.umask(umask)
    output.chmod(0o666 & ~umask)


def text_of(file: Path) -> str:
    """Return what a file of text holds."""
    from sds.errors import FormatError

    try:
        return read_regular(file).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{file} is no text: {error}") from error
    except OSError as error:
        raise path_error(file, error) from error

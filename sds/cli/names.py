"""Files and datasets as they are named on the command line."""

from __future__ import annotations

from pathlib import Path

from sds.files import canonical_path, path_error, read_regular


def split_name(name: str) -> tuple[str, str | None]:
    """Return the file and the dataset of ``FILE[:/DATASET]``; a file that exists is one."""
    from sds.hdf5.dataset import parse_dataset_name

    if ":/" not in name[1:] or Path(name).exists():
        return canonical_path(name), None
    file, dataset = parse_dataset_name(name)
    return canonical_path(file), dataset


def check_output(output: Path) -> None:
    """Raise an error unless a file may be written there.

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


def text_of(file: Path) -> str:
    """Return what a file of text holds."""
    from sds.errors import FormatError

    try:
        return read_regular(file).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{file} is no text: {error}") from error
    except OSError as error:
        raise path_error(file, error) from error

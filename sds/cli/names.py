"""Files and datasets as they are named on the command line."""

from __future__ import annotations

from pathlib import Path

from sds.files import canonical_path


def split_name(name: str) -> tuple[str, str | None]:
    """Return the file and the dataset of ``FILE[:/DATASET]``; a file that exists is one."""
    from sds.hdf5.dataset import parse_dataset_name

    if ":/" not in name[1:] or Path(name).exists():
        return canonical_path(name), None
    file, dataset = parse_dataset_name(name)
    return canonical_path(file), dataset


def check_directory_of(output: Path) -> None:
    """Raise FileMissingError unless the directory is there in which a file is to be written."""
    from sds.errors import FileMissingError

    if not output.parent.is_dir():
        message = f"no such directory: {output.parent}; make it, or name another for {output.name}"
        raise FileMissingError(message)


def text_of(file: Path) -> str:
    """Return what a file of text holds."""
    from sds.errors import FileMissingError, FormatError

    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileMissingError(f"no such file: {file}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{file} is no text: {error}") from error

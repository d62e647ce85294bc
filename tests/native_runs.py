"""What programs print without SDS, found once for one program and the same bytes."""

import hashlib
from pathlib import Path

_found = {}


def once(run, *arguments):
    """Return what `run` returns of some arguments; of files among them only the bytes count.

    For programs that print nothing of where their files are.
    """
    key = run, *map(_key, arguments)
    if key not in _found:
        _found[key] = run(*arguments)
    return _found[key]


def _key(argument):
    path = Path(str(argument))
    if isinstance(argument, Path) and path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return str(argument)

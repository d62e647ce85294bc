"""Authentication by bearer tokens from a file that only their owner can read.

The file has one token per line, after its scope: ``operate`` may do everything, ``read`` may look.
Whoever can read the file could do the same with the account's files; there is no other authority.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
import stat
from enum import StrEnum
from typing import TYPE_CHECKING

from sds.errors import ConfigurationError, PermissionDeniedError

if TYPE_CHECKING:
    from pathlib import Path

    from sds.home import Home

_TOKEN_BYTES = 32


class Scope(StrEnum):
    """Scope of a token."""

    READ = "read"
    OPERATE = "operate"


class Tokens:
    """The tokens of one home."""

    def __init__(self, tokens: dict[Scope, str]) -> None:
        self._tokens = tokens

    @classmethod
    def load(cls, home: Home) -> Tokens:
        """Read the tokens of a home, making them where there are none.

        Raises
        ------
        PermissionDeniedError
            If others may read the file, or it is a link.
        ConfigurationError
            If it holds something else.
        """
        try:
            return cls(_read(home.token))
        except FileNotFoundError:
            _write_new(home.token)
            return cls(_read(home.token))

    def token(self, scope: Scope) -> str:
        """Return the token of a scope."""
        return self._tokens[scope]

    def proofs(self, challenge: str, ports: tuple[int, int]) -> dict[str, str]:
        """Return what only a holder of each token can answer to a challenge, by scope.

        Parameters
        ----------
        ports
            Of the server and of the client, so that no one between them can pass an answer on that
            was given on another connection.
        """
        said = f"sds-server {challenge} {ports[0]} {ports[1]}".encode()
        return {
            scope.value: hmac.new(token.encode(), said, hashlib.sha256).hexdigest()
            for scope, token in self._tokens.items()
        }

    def scope_of(self, authorization: str | None) -> Scope | None:
        """Return what an Authorization header allows; None: nothing."""
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        found = None
        for scope, known in self._tokens.items():
            # All are compared, each in constant time.
            if hmac.compare_digest(known.encode(), token.strip().encode()):
                found = scope
        return found


def _read(path: Path) -> dict[Scope, str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        message = f"{path} is a link; remove it, new tokens are made"
        raise PermissionDeniedError(message) from error
    with os.fdopen(descriptor, encoding="ascii") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        if mode & 0o077:
            message = f"{path} has mode {mode:o}: others may read the tokens; chmod 600 it"
            raise PermissionDeniedError(message)
        lines = [line.split() for line in stream if line.strip()]
    try:
        tokens = {Scope(scope): token for scope, token in lines}
    except ValueError:
        tokens = {}
    if set(tokens) != set(Scope):
        message = f"{path} does not hold a read and an operate token; delete it, a new one is made"
        raise ConfigurationError(message)
    return tokens


def _write_new(path: Path) -> None:
    """Write new tokens; where another process is faster, its tokens stay."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        for scope in Scope:
            stream.write(f"{scope.value} {secrets.token_urlsafe(_TOKEN_BYTES)}\n")
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()

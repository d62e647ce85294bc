"""An ``lfs`` that answers as Lustre's would."""

import os
import stat


def put_lfs(directory, monkeypatch, script):
    """Put an ``lfs`` before all others in PATH; it writes down how it was called."""
    (directory / "bin").mkdir()
    lfs = directory / "bin" / "lfs"
    lfs.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {directory}/called\n{script}\n')
    lfs.chmod(lfs.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{lfs.parent}:{os.environ['PATH']}")
    return directory / "called"


def answering(text):
    """Return a script that prints a text."""
    return f"cat <<'ANSWER'\n{text}ANSWER"


def plain(stripe_count, stripe_size_bytes):
    """Return what is printed of a file that is striped alike everywhere."""
    return (
        f"lmm_stripe_count:  {stripe_count}\n"
        f"lmm_stripe_size:   {stripe_size_bytes}\n"
        "lmm_pattern:       raid0\n"
    )

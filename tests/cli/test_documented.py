"""Every command and every option is in the manual, and in no other place than its own section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from sds.cli.command_list import BASE, base_module
from sds.cli.typer_app import app

MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
TEXT = MANUAL.read_text()


def commands(group, path=("sds",)):
    for name, command in group.commands.items():
        own = (*path, name)
        yield own, command
        if hasattr(command, "commands"):
            yield from commands(command, own)


EVERY = list(commands(typer.main.get_command(app)))


def options(path, command):
    """Return the options of a command, whichever package parses them."""
    if path[1] in BASE:
        return [o for a in base_module(path[1]).parser()._actions for o in a.option_strings]
    return [o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")]


def section(path):
    """Return the manual's section of a command, with those of the commands below it."""
    level = "#" * len(path)
    title = re.escape(f"{level} {' '.join(path)}\n")
    found = re.search(rf"^{title}(.*?)(?=^#{{1,{len(path)}}} |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section {' '.join(path)!r}"
    return found[1]


@pytest.mark.parametrize(("path", "command"), EVERY, ids=lambda value: str(value)[:40])
def test_every_command_and_option_is_documented(path, command):
    text = section(path)
    parent = section(path[:-1]) if len(path) > 2 else ""
    for option in options(path, command):
        if option.startswith("--") and option != "--help":
            assert re.search(rf"{option}\b", text + parent), f"{option} of {' '.join(path)}"


def test_the_manual_documents_no_option_that_does_not_exist():
    known = {option for path, command in EVERY for option in options(path, command)}
    known |= {"--help", "--version"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) <= known


@pytest.mark.parametrize("path", [("sds",), *(path for path, _ in EVERY)], ids=" ".join)
def test_help_is_free_of_type_names_and_doubled_brackets(path, sds):
    if path[1:] and path[1] in BASE:
        shown = sds(*path[1:], "--help").out
    else:
        shown = CliRunner().invoke(app, [*path[1:], "--help"], env={"TERMINAL_WIDTH": "200"}).stdout
    assert "Usage: sds" in shown
    # <bash|csh|fish> are the words that an option takes.
    assert re.findall(r"<[a-z]+(?:\[.*?\])?(?: range)?>|[{}]|\[\[|\.{4,}", shown) == []


@pytest.mark.parametrize(("path", "command"), EVERY, ids=lambda value: str(value)[:40])
def test_every_command_says_what_it_does(path, command):
    assert command.help, path
    assert len(command.help.splitlines()[0]) < 100
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{parameter.name} of {' '.join(path)}"


@pytest.mark.parametrize("name", BASE)
def test_every_word_of_the_base_is_explained(name):
    for action in base_module(name).parser()._actions:
        assert action.help, f"{action.dest} of sds {name}"

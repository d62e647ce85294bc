"""Classes of commands whose help names arguments as the manual does, whatever typer's own style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def _without_types(parameters: Sequence[Any]) -> Sequence[Any]:
    """Show no type beside arguments, which have a name, nor beside flags, which take no value."""
    for parameter in parameters:
        if isinstance(parameter, TyperArgument) or getattr(parameter, "is_flag", False):
            # typer 0.2x shows what this returns; older versions have no such method.
            parameter.display_type_rich = _no_type
    return parameters


def _no_type(ctx: object) -> str:  # noqa: ARG001  (typer's own)
    return ""


def _plain(pieces: Iterable[str]) -> list[str]:
    """Return the pieces of a usage line without the braces that typer puts around arguments.

    >>> _plain(["[OPTIONS]", "{FILE}...", "[SELECTION]", "{COMMAND [ARGUMENT]...}..."])
    ['[OPTIONS]', 'FILE...', '[SELECTION]', 'COMMAND [ARGUMENT]...']
    """
    unbraced = (piece.replace("{", "").replace("}", "") for piece in pieces)
    return [piece.replace("......", "...") for piece in unbraced]


class Command(TyperCommand):
    """A command with plain help."""

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own)
        """Return arguments and options."""
        return _without_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  (typer's own)
        """Return what stands behind the command's name in the usage line."""
        return _plain(super().collect_usage_pieces(ctx))


class Group(TyperGroup):
    """A group of commands with plain help."""

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own)
        """Return arguments and options."""
        return _without_types(super().get_params(ctx))

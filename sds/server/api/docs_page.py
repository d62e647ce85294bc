"""The page at /docs, rendered from the server's own OpenAPI description.

One page of plain HTML, complete in itself: login nodes have no internet from which a browser could
fetch the scripts of a viewer.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.2rem; border-bottom: 1px solid #8888 }
h3 { margin: 1.6rem 0 .2rem; font: 600 1rem ui-monospace, monospace }
table { border-collapse: collapse; margin: .4rem 0 }
td, th { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top }
p { margin: .2rem 0 }
code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere }
:root { color-scheme: light dark }
"""

_ACCESS = (
    "<p>Everything below /api needs <code>Authorization: Bearer TOKEN</code> with a token of the "
    "file <code>token</code> in SDS_HOME. For programs, the same as OpenAPI: "
    "<a href='openapi.json'>openapi.json</a>.</p>"
)


def reference_page(description: Mapping[str, Any]) -> str:
    """Return an OpenAPI description as one HTML page.

    Parameters
    ----------
    description
        OpenAPI 3.1, as FastAPI makes it.
    """
    info = description["info"]
    schemas = description.get("components", {}).get("schemas", {})
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{escape(info['title'])} REST</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('summary', ''))}.</p>",
        _ACCESS,
        "<h2>Requests</h2>",
    ]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts.extend(_operation(method, path, operation))
    parts.append("<h2>Values</h2>")
    for name, schema in sorted(schemas.items()):
        parts.extend(_schema(name, schema))
    parts.append("</body></html>")
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3>{escape(method.upper())} {escape(path)}</h3>"
    yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
    rows: list[tuple[str, str, str]] = []
    for parameter in operation.get("parameters", ()):
        needed = "" if parameter.get("required") else ", optional"
        place = f"{parameter['in']}{needed}"
        rows.append((parameter["name"], place, _type(parameter.get("schema", {}))))
    body = operation.get("requestBody", {}).get("content", {})
    rows += [("body", kind, _type(content.get("schema", {}))) for kind, content in body.items()]
    # Errors are many and alike: those of one kind of value share a row.
    answers: dict[tuple[bool, str], list[str]] = {}
    for status, answer in operation.get("responses", {}).items():
        kinds = [_type(content.get("schema", {})) for content in answer.get("content", {}).values()]
        answers.setdefault((status >= "400", " or ".join(kinds)), []).append(status)
    rows += [
        (" ".join(statuses), "error" if is_error else "answer", kind)
        for (is_error, kind), statuses in answers.items()
    ]
    yield from _table(rows)


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3 id='{escape(name)}'>{escape(name)}</h3>"
    if "enum" in schema:
        yield f"<p>{_type(schema)}</p>"
    required = schema.get("required", ())
    yield from _table(
        (field, "" if field in required else "optional", _type(value))
        for field, value in schema.get("properties", {}).items()
    )


def _table(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    yield "<table>"
    for name, remark, kind in rows:
        yield (
            f"<tr><td><code>{escape(name)}</code></td><td>{remark}</td>"
            f"<td><code>{kind}</code></td></tr>"
        )
    yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value as HTML: a word, or a link to where it is described."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "const" in schema:
        return escape(repr(schema["const"]))
    if "enum" in schema:
        return escape(" | ".join(repr(value) for value in schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(_type(choice) for choice in schema[key])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any value")))

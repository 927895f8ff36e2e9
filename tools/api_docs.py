"""Write the generated parts of docs/API.md from the OpenAPI schema: `make docs`.

A part stands between `<!-- made: NAME -->` and `<!-- end -->`; what is around it is written by hand
and stays. NAME is `routes`, or a route such as `POST /v1/audio/speech`. A route that has no place
yet gets one at the end of the file; a place whose route is gone is an error.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from phonate import settings
from phonate.app import create_app
from phonate.engine.scripted import ScriptedEngine

Schema = dict[str, Any]

PAGE = Path(__file__).parent.parent / "docs" / "API.md"
_PART = re.compile(r"(<!-- made: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_METHODS = ("get", "post", "put", "patch", "delete")
_NUMBERS = {"integer": "whole number", "number": "number"}
_EMPTY_WORDS = ("Successful Response", "Done.")
_EVERYWHERE = "X-Request-ID"


def openapi() -> Schema:
    """The schema of a server with default settings."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = settings.load({"voice_dir": folder}, {}).settings
        return create_app(loaded, ScriptedEngine()).openapi()


class Renderer:
    """Markdown out of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.routes = {
            f"{method.upper()} {path}": operation
            for path, item in schema["paths"].items()
            for method, operation in item.items()
            if method in _METHODS
        }

    def part(self, name: str) -> str:
        if name == "routes":
            return self._overview()
        if name == "errors":
            return self._errors()
        if name not in self.routes:
            raise SystemExit(f"docs/API.md describes {name}, which the server does not have.")
        return self._route(self.routes[name])

    def _overview(self) -> str:
        rows = [
            [f"`{name}`", _first_sentence(operation.get("description", ""))]
            for name, operation in self.routes.items()
        ]
        for path, socket in self._schema.get("x-websockets", {}).items():
            rows.append([f"`WS {path}`", f"{socket['summary']}."])
        return _table(["route", "what it does"], rows)

    def _errors(self) -> str:
        found = {
            status: _line(answer.get("description", ""))
            for operation in self.routes.values()
            for status, answer in operation.get("responses", {}).items()
            if status >= "400" and not _is_fastapis_own(answer)
        }
        return _table(["status", "meaning"], [[k, v] for k, v in sorted(found.items())])

    def _route(self, operation: Schema) -> str:
        parts = [_paragraph(operation.get("description", operation.get("summary", "")))]
        if parameters := [self._resolve(p) for p in operation.get("parameters", [])]:
            parts.append(self._parameters(parameters))
        body = self._resolve(operation.get("requestBody", {}))
        for media, content in body.get("content", {}).items():
            if fields := self._fields(content.get("schema", {})):
                parts.append(f"Body, `{media}`:\n\n{fields}")
        for status, answer in operation.get("responses", {}).items():
            if status < "400":
                parts.extend(self._answer(status, self._resolve(answer)))
        parts.append(_error_line(operation.get("responses", {})))
        return "\n".join(part for part in parts if part)

    def _parameters(self, parameters: list[Schema]) -> str:
        rows = [
            [
                f"`{p['name']}`" + (" (required)" if p.get("required") else ""),
                p["in"],
                self._type(p.get("schema", {})),
                _line(p.get("description", "")),
            ]
            for p in parameters
        ]
        return _table(["parameter", "in", "what it may be", "meaning"], rows)

    def _fields(self, schema: Schema, *, sent: bool = True) -> str:
        """`sent` by the client: then it matters what is required and what the default is."""
        schema = self._resolve(schema)
        required = schema.get("required", []) if sent else []
        fields = schema.get("properties", {}).items()
        rows = []
        for name, given in sorted(fields, key=lambda item: item[0] not in required):
            field = self._resolve(given)
            default = field.get("default") if sent else None
            rows.append(
                [
                    f"`{name}`" + (" (required)" if name in required else ""),
                    self._type(field),
                    "" if default is None else f"`{default}`",
                    _line(field.get("description", "")),
                ]
            )
        return _table(["field", "what it may be", "default", "meaning"], rows)

    def _answer(self, status: str, answer: Schema) -> list[str]:
        """What comes when all goes well: types, headers, fields."""
        content = answer.get("content", {})
        words = _line(answer.get("description", ""))
        kinds = ", ".join(f"`{media}`" for media in content)
        said = "" if words in _EMPTY_WORDS else words
        parts = [_paragraph(" ".join(x for x in (f"Answer {status}: {kinds}.", said) if x))]
        for media in content.values():
            parts.append(self._fields(media.get("schema", {}), sent=False))
        rows = [
            [f"`{name}`", _line(self._resolve(header).get("description", ""))]
            for name, header in answer.get("headers", {}).items()
            if name != _EVERYWHERE
        ]
        parts.append(_table(["header", "meaning"], rows))
        return parts if kinds or said or rows else []

    def _resolve(self, schema: Schema) -> Schema:
        """Follow `$ref`; what stands beside it wins."""
        while "$ref" in schema:
            target: Any = self._schema
            for step in schema["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        return schema

    def _type(self, schema: Schema) -> str:
        """What a value may be, in a few words; that null is absent is said once, elsewhere."""
        schema = self._resolve(schema)
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return " ".join(f"`{value}`" for value in schema["enum"] if value is not None)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                kinds = [self._type(each) for each in schema[key]]
                return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
        kind = schema.get("type", "")
        if isinstance(kind, list):
            each = [self._type({**schema, "type": one}) for one in kind if one != "null"]
            return " or ".join(each)
        if kind == "array":
            return _array(schema, self._type(schema.get("items", {})))
        if kind == "object":
            return self._object(schema)
        if kind == "string":
            return _string(schema)
        return _NUMBERS.get(kind, kind) + _bounds(schema)

    def _object(self, schema: Schema) -> str:
        names = ", ".join(f"`{name}`" for name in schema.get("properties", {}))
        return f"object with {names}" if names else "object"


def _is_fastapis_own(answer: Schema) -> bool:
    """The 422 that FastAPI adds by itself and that never comes: our answer is 400."""
    return "HTTPValidationError" in str(answer)


def _error_line(responses: Schema) -> str:
    statuses = [
        status
        for status, answer in responses.items()
        if status >= "400" and not _is_fastapis_own(answer)
    ]
    return f"Errors: {', '.join(statuses)}.\n" if statuses else ""


def _array(schema: Schema, items: str) -> str:
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    count = f"{low} to {high} of " if low and high else f"up to {high} of " if high else ""
    return f"list: {count}{items or 'anything'}"


def _string(schema: Schema) -> str:
    words = {"binary": "file", "byte": "base64"}.get(schema.get("format", ""), "string")
    limit = schema.get("maxLength")
    return f"{words}, at most {limit} characters" if limit else words


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    if high is not None and abs(high) >= 2**31 - 1:
        high = None  # as large as the type: no bound that anybody asks about
    if low is not None and abs(low) >= 2**31:
        low = None
    below = schema.get("exclusiveMaximum")
    if above is not None and below is not None:
        return f" between {_number(above)} and {_number(below)}"
    if above is not None:
        return f" above {_number(above)}" + (f", up to {_number(high)}" if high else "")
    if low is not None and high is not None:
        return f", {_number(low)} to {_number(high)}"
    return f", {_number(low)} or more" if low is not None else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Columns in which nothing stands are left out."""
    used = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    if not rows:
        return ""
    lines = [
        [head[i] for i in used],
        ["---"] * len(used),
        *([row[i] for i in used] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _line(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _paragraph(text: str) -> str:
    return f"{' '.join(text.split())}\n" if text else ""


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:])\s", _line(text), maxsplit=1)[0].rstrip(":")


def rewrite(page: str, schema: Schema) -> str:
    """`page` with its generated parts renewed."""
    renderer = Renderer(schema)
    known = {found[1] for found in _PART.findall(page)}
    for name in renderer.routes:
        if name not in known:
            page += f"\n### {name}\n\n<!-- made: {name} -->\n<!-- end -->\n"
    return _PART.sub(lambda part: f"{part[1]}\n{renderer.part(part[2])}\n{part[3]}", page)


def main() -> None:
    before = PAGE.read_text(encoding="utf-8")
    after = rewrite(before, openapi())
    PAGE.write_text(after, encoding="utf-8")
    print(f"docs/API.md is {'as it was' if after == before else 'renewed'}.", file=sys.stderr)


if __name__ == "__main__":
    main()

"""The one-way flow, kept by reading the imports: api -> speech -> {audio, voices, engine/base}."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "server" / "phonate"
FILES = sorted(ROOT.rglob("*.py"))

WEB = {"fastapi", "starlette", "uvicorn", "websockets", "httpx"}


def imports_of(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def top(name):
    return name.split(".")[0]


def area(path):
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


ALLOWED = {
    "audio": {"audio", "errors"},
    "engine": {"engine", "errors", "settings", "audio"},
    "voices": {"voices", "errors", "audio", "engine.base"},
    "speech": {"speech", "audio", "voices", "engine.base", "errors"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_flow_one_way(path):
    allowed = ALLOWED.get(area(path))
    if allowed is None:
        return
    for name in imports_of(path):
        if name.startswith("phonate."):
            inner = name.removeprefix("phonate.")
            assert any(inner == a or inner.startswith(a + ".") for a in allowed), (
                f"{path.name} imports {name}"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_stay_at_their_edge(path):
    where = str(path.relative_to(ROOT))
    tops = {top(name) for name in imports_of(path)}
    if area(path) in ("speech", "audio", "engine", "voices"):
        web = tops & WEB
        assert not web, f"{where} imports {web}"
    if "fastapi" in tops:
        assert where == "app.py" or where.startswith("api/")
    if "opentelemetry" in tops:
        assert where == "api/tracing.py"
    if "obstore" in tops:
        assert where == "voices/objects.py"
    if "ray" in tops:
        assert where.startswith("ray/")
    if "cffi" in tops:
        assert where in ("engine/qwen/engine.py", "engine/qwen/library.py")
    if "hibari" in tops:
        assert where == "engine/builtin/engine.py"
    if "py_nanotts" in tops:
        assert where == "engine/builtin/pico_worker.py"

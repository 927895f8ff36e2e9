"""docs/API.md says what the server's own schema says; tools/api_docs.py writes it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("api_docs", ROOT / "tools" / "api_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "API.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date(tool, page):
    assert tool.rewrite(page, tool.openapi()) == page, "run `make docs`"


def test_every_route_has_a_place(tool, page):
    for route in tool.Renderer(tool.openapi()).routes:
        assert f"### {route}\n\n<!-- made: {route} -->" in page


SCHEMA = {
    "paths": {
        "/speak": {
            "post": {
                "description": "Speaks | aloud. And more.",
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Body"}}
                    }
                },
                "responses": {
                    "200": {
                        "description": "Sound.",
                        "content": {"audio/mpeg": {}},
                        "headers": {"X-Voice": {"description": "Who speaks."}, "X-Request-ID": {}},
                    },
                    "503": {"description": "Busy."},
                    "422": {"content": {"x": {"$ref": "#/components/HTTPValidationError"}}},
                },
            }
        }
    },
    "components": {
        "schemas": {
            "Body": {
                "required": ["text"],
                "properties": {
                    "speed": {"type": "number", "minimum": 0.25, "maximum": 4, "default": 1},
                    "times": {"type": ["integer", "null"], "minimum": 1},
                    "kind": {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
                    "text": {"type": "string", "maxLength": 9, "description": "What to say."},
                    "all": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
                },
            }
        }
    },
}


START = """# Title
<!-- made: routes -->
old
<!-- end -->
by hand
<!-- made: errors -->
<!-- end -->
"""


def test_a_new_route_gets_a_place_with_what_its_schema_says(tool):
    page = tool.rewrite(START, SCHEMA)
    assert page.startswith("# Title\n<!-- made: routes -->\n")
    assert "old" not in page
    assert "by hand\n" in page
    assert "| `POST /speak` | Speaks \\| aloud. |" in page
    assert "### POST /speak" in page
    assert "| `text` (required) | string, at most 9 characters |  | What to say. |" in page
    assert "| `speed` | number, 0.25 to 4 | `1` |  |" in page
    assert "| `kind` | `a` `b` |  |  |" in page
    assert "| `all` | list: up to 3 of whole number |  |  |" in page
    assert "| `times` | whole number, 1 or more |  |  |" in page
    assert "Answer 200: `audio/mpeg`. Sound.\n" in page
    assert "| `X-Voice` | Who speaks. |" in page
    assert "X-Request-ID" not in page
    assert "\nErrors: 503.\n" in page
    assert "| 503 | Busy. |" in page
    assert page.index("`text`") < page.index("`speed`")
    assert tool.rewrite(page, SCHEMA) == page


def test_a_place_without_a_route_is_an_error(tool):
    with pytest.raises(SystemExit, match="GET /gone"):
        tool.rewrite("<!-- made: GET /gone -->\n<!-- end -->", SCHEMA)

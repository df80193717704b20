"""Fixtures of the tests themselves."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def outlives_a_module(fixture: ast.AsyncFunctionDef) -> bool:
    words = [keyword for call in fixture.decorator_list if isinstance(call, ast.Call) for keyword in call.keywords]
    scopes = [each.value.value for each in words if each.arg == "scope" and isinstance(each.value, ast.Constant)]
    return any(scope in ("session", "package") for scope in scopes)


def test_no_fixture_takes_its_event_loop_into_another_module() -> None:
    """While one is in use, anyio runs all tests in its loop. Tests in virtual time would wait in real time there."""
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno} {node.name}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and outlives_a_module(node)
    ]
    assert found == []

"""What each host of these scripts does at a server, and what it reports: in Python, with any client."""

from collections.abc import Awaitable, Callable
from typing import Any

ANSWER = {"username": "ada", "email": "ada@example.org"}

Call = Callable[..., Awaitable[Any]]


async def take_tour(client: Any, call: Call, prefix: str) -> dict[str, Any]:
    """Calls each tool by `call(name, progress, **arguments)`, and gets a prompt; `progress` may be None."""
    progress: list[float] = []

    async def note(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    async def text(name: str, **arguments: Any) -> str:
        return (await call(prefix + name, None, **arguments)).content[0].text

    failed = await call(f"{prefix}test_error_handling", None)
    is_error = failed.isError if hasattr(failed, "isError") else failed.is_error
    await call(f"{prefix}test_tool_with_progress", note)
    prompt = await client.get_prompt(f"{prefix}test_prompt_with_arguments", {"arg1": "1", "arg2": "2"})
    return {
        "echo": await text("echo", text="e" * 1024),
        "failed": failed.content[0].text if is_error else None,
        "asked": await text("test_elicitation", message="Who?"),
        "generated": await text("test_sampling", prompt="Where?"),
        "roots": await text("test_input_required_result_list_roots"),
        "progress": progress,
        "prompt": prompt.messages[0].content.text,
    }

# /// script
# requires-python = ">=3.11"
# dependencies = ["hubbub"]
# ///
"""Coding agents work in one folder at the same time, and a person answers all of them in one inbox.

python agents.py /path/to/project writer='Write notes.txt' tester='Run the tests'
"""

import asyncio
import sys

import hubbub_client


async def work(hub: hubbub_client.Hub, agent: str, prompt: str, folder: str) -> None:
    """Give an agent a prompt, and print what it says and which files it has changed."""
    try:
        result = await hub.call_tool(agent, "start", {"prompt": prompt, "cwd": folder})
    except hubbub_client.HubbubError as error:
        print(f"{agent} has not worked: {error}")
        return
    said = result.structured or {}
    print(f"{agent}: {said.get('text') or result.text}", flush=True)
    for path in said.get("changed", []):
        print(f"{agent} changed {path}", flush=True)


async def main(folder: str, *prompts: str) -> None:
    async with hubbub_client.connect(name="agents.py") as hub:
        print("What they want to do is in the inbox: hubbub web, also on a phone", flush=True)
        given = (prompt.partition("=") for prompt in prompts)
        await asyncio.gather(*(work(hub, agent, prompt, folder) for agent, _, prompt in given))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

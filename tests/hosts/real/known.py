"""What hosts cannot do, whose it is, and what their users need to know. An entry that has come true otherwise is wrong.

A sentence is for the users of the program; the table of docs/hosts/README.md has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Owner = Literal["host", "hub", "by design"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Something that is known not to work."""

    program: str
    stops: Sequence[str]
    owner: Owner = "host"
    sentence: str
    over: Sequence[str] = ("http", "bridge")
    always: bool = True
    """False for what works now and then."""


CALL_GOES_ON = "Ctrl-C leaves a call running."
TOKEN_UNSAID = "it does not say that its token is wrong."
REFUSAL_UNSAID = "It does not say that its token or log-in is refused."
TOOLS_LOST = "Over HTTP it loses all tools when the hub restarts in a call: start it again, or use the bridge."
LISTS_ONCE = "It lists tools once."
ENDS_IN_CALL = "Over HTTP a restart in a call ends it."
ENDS_ANYWAY = "A restart in a call ends it."
ENDS_KILLED = "Killing the hub in a call ends it."
GOES_ON = "Ctrl-C leaves a call running."
NO_LINKS = "Its model gets no links."

KNOWN: Sequence[Known] = (
    Known(program="codex", stops=["new server"], sentence="It reads the list of tools once: start it again."),
    Known(program="codex", stops=["wrong token"], over=["bridge"], sentence=f"Over the bridge {TOKEN_UNSAID}"),
    Known(program="gemini-cli", stops=["cancel"], sentence=CALL_GOES_ON),
    Known(program="gemini-cli", stops=["wrong token"], sentence=TOKEN_UNSAID.capitalize()),
    Known(program="opencode", stops=["link"], sentence=NO_LINKS),
    Known(program="opencode", stops=["cancel"], over=["http"], sentence=f"Over HTTP {CALL_GOES_ON}"),
    Known(program="opencode", stops=["wrong token"], over=["bridge"], sentence=f"Over the bridge {TOKEN_UNSAID}"),
    Known(
        program="qwen-code", stops=["new server"], sentence="Without a terminal it sees no new tools: start it again."
    ),
    Known(
        program="qwen-code",
        stops=["SIGTERM in a call", "kill -9 in a call"],
        over=["http"],
        sentence=TOOLS_LOST,
    ),
    Known(program="qwen-code", stops=["wrong token"], sentence=REFUSAL_UNSAID),
    Known(program="qwen-code", stops=["revoked"], over=["log-in"], sentence=REFUSAL_UNSAID),
    Known(
        program="copilot-cli",
        stops=["image", "link"],
        sentence="A model of your own gets no images and no links of results.",
    ),
    Known(
        program="copilot-cli",
        stops=["SIGTERM", "kill -9", "SIGTERM in a call", "kill -9 in a call"],
        over=["http"],
        always=False,
        sentence="Over HTTP it often loses all tools when the hub restarts: start it again, or use the bridge.",
    ),
    Known(program="copilot-cli", stops=["wrong token"], sentence=TOKEN_UNSAID.capitalize()),
    Known(program="inspector", stops=["cancel"], over=["http"], sentence=f"Over HTTP {CALL_GOES_ON}"),
    Known(
        program="mcp-remote",
        stops=["cancel"],
        over=["http"],
        sentence="A call that its client cancels goes on.",
    ),
    Known(
        program="openai-agents", stops=["SIGTERM in a call", "kill -9 in a call"], over=["http"], sentence=ENDS_IN_CALL
    ),
    Known(program="langchain-mcp-adapters", stops=["link"], sentence="A link ends it."),
    Known(program="langchain-mcp-adapters", stops=["new server"], sentence=LISTS_ONCE),
    Known(
        program="langchain-mcp-adapters",
        stops=["SIGTERM in a call", "kill -9 in a call"],
        sentence=ENDS_ANYWAY,
    ),
    Known(program="google-adk", stops=["new server"], sentence=LISTS_ONCE),
    Known(program="google-adk", stops=["cancel"], over=["http"], sentence=f"Over HTTP {GOES_ON}"),
    Known(program="pydantic-ai", stops=["new server"], sentence=LISTS_ONCE),
    Known(program="pydantic-ai", stops=["kill -9 in a call"], sentence=ENDS_KILLED),
    Known(
        program="fastmcp",
        stops=["kill -9 in a call"],
        over=["http"],
        sentence=f"Over HTTP {ENDS_KILLED[0].lower()}{ENDS_KILLED[1:]}",
    ),
    Known(program="strands-agents", stops=["link"], sentence=NO_LINKS),
    Known(program="strands-agents", stops=["new server"], sentence=LISTS_ONCE),
    Known(
        program="strands-agents",
        stops=["kill -9 in a call"],
        over=["http"],
        sentence=f"Over HTTP {ENDS_KILLED[0].lower()}{ENDS_KILLED[1:]}",
    ),
    Known(program="strands-agents", stops=["cancel"], sentence=GOES_ON),
)

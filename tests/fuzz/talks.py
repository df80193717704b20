"""A host that behaves amid what no host should send: its call's question comes to it, and its answer arrives."""

import json
from typing import Any

from .chance import Chance
from .host_messages import CAPABILITIES, as_object, in_session
from .payloads import FORM
from .subject import Finding, Tally, peer

SERVER = "steady"
"""The server that is talked to; nobody else uses it."""

ANSWERED = "a question was answered"
ONE_IN = 25
"""So many inputs have one talk among them."""

PATIENT_S = 20
REVISION = "2025-11-25"


def steady() -> dict[str, Any]:
    """Its configuration: its questions name their call, and have their time, however busy the machine is."""
    return peer("2026-07-28", call_timeout_s=PATIENT_S, answer_timeout_s=PATIENT_S, receiver_task_ttl_s=5)


def judge(tally: Tally) -> None:
    """Adds a finding if no question of a run was answered: then nothing was shown."""
    if tally.total >= 10 * ONE_IN and not tally.outcomes[ANSWERED]:
        tally.found("no host was asked anything")


class Talk:
    """One call, whose server asks the host and returns its answer."""

    def __init__(self, chance: Chance, number: int) -> None:
        self._chance = chance
        self._message = f"Who is {number}?"
        self._content = {"name": f"{number:x}@b.c"}  # the form takes nine characters
        self.id = f"talk-{number}"
        self.over = False

    def handshake(self) -> list[bytes]:
        """What begins a session."""
        info = {"protocolVersion": REVISION, "capabilities": CAPABILITIES, "clientInfo": {"name": "x", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": f"hello-{self.id}", "method": "initialize", "params": info}
        return [_raw(hello), _raw({"jsonrpc": "2.0", "method": "notifications/initialized"})]

    def call(self) -> bytes:
        """The call whose server asks."""
        question = {"method": "elicitation/create", "params": {"message": self._message, "requestedSchema": FORM}}
        params = {"name": "echo", "arguments": {}, "question": question}
        return _raw({"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params})

    def noise(self) -> list[bytes]:
        """What should not be sent, in lines."""
        return [self._chance.document(in_session(self._chance)) for _ in range(self._chance.upto(2))]

    def hear(self, told: dict[str, Any]) -> bytes | None:
        """Takes what the hub says. Returns the answer to its question; raises Finding if another one has arrived."""
        if told.get("method") == "elicitation/create" and as_object(told["params"]).get("message") == self._message:
            return _raw({"jsonrpc": "2.0", "id": told["id"], "result": {"action": "accept", "content": self._content}})
        if "method" not in told and told.get("id") == self.id:
            self.over = True
            if self._content["name"] not in json.dumps(as_object(told.get("result"))):
                raise Finding(f"the answer did not arrive: {json.dumps(told)[:1000]}")
        return None


def _raw(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()

"""Asks a model over HTTP: in the dialect that its endpoint understands, again where that helps, within a time limit."""

import json
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import anyio
import httpx2

from hubbub_agent.models.endpoint import Chat
from hubbub_agent.rules.problems import AnswerProblem
from hubbub_client import payload
from hubbub_client.numbers import whole_text
from hubbub_shared.legible import clean

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
MAX_READ_BYTES = 64 * 1024
MAX_EXCERPT_CHARS = 300
RETRYABLE_STATUSES = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which the same request may succeed."""

UNSUPPORTED_STATUSES = frozenset((400, 404, 415, 422, 501))
"""Statuses of an endpoint that does not know a part of the request."""

PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
PATH = "/chat/completions"


class ModelNotAsked(AnswerProblem):
    """The model did not run, so no tokens were used."""


@dataclass(slots=True)
class Dialect:
    """The parts of the API that an endpoint takes, as far as known. `learn_from_refusal` gives up one part at a time.

    `limit_name` is the field for the most tokens. Of `json_modes`, the remaining ways to request JSON, the first is
    used. `needs_v1`: the path needs `/v1`. `learned_fields` has `limit` once `limit_name` was changed.
    """

    limit_name: str
    json_modes: list[str]
    needs_v1: bool = False
    takes_temperature: bool = True
    learned_fields: set[str] = field(default_factory=lambda: set[str]())

    @classmethod
    def from_rules(cls, chat: Chat) -> "Dialect":
        """Return the dialect that the rules set for an endpoint; options that they leave open have the usual values."""
        json_modes = {"auto": ["schema", "object", "none"]}.get(chat.json_mode, [chat.json_mode])
        return cls(LIMIT_FIELDS[0] if chat.limit_field == "auto" else chat.limit_field, json_modes)

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request with the fields that this endpoint takes."""
        adapted = {key: value for key, value in body.items() if key not in ("max_tokens", "response_format")}
        adapted[self.limit_name] = body["max_tokens"]
        if not self.takes_temperature:
            adapted.pop("temperature", None)
        if "response_format" in body and self.json_modes[0] != "none":
            schema: object = body["response_format"]
            adapted["response_format"] = schema if self.json_modes[0] == "schema" else {"type": "json_object"}
        return adapted

    def learn_from_refusal(self, chat: Chat, body: Mapping[str, Any], status: int, message: str) -> bool:
        """Change the one option that a refusal is about; return whether there is one, so that a repeat may succeed."""
        # The path may lack `/v1`; a 404 that speaks of a model is about the model.
        if status == 404 and not self.needs_v1 and "v1" not in chat.base_url and "model" not in message.lower():
            self.needs_v1 = True
            return True
        is_about_limit = any(each in message for each in LIMIT_FIELDS)
        if "limit" not in self.learned_fields and chat.limit_field == "auto" and is_about_limit:
            self.learned_fields.add("limit")
            self.limit_name = LIMIT_FIELDS[1 - LIMIT_FIELDS.index(self.limit_name)]
            return True
        if self.takes_temperature and "temperature" in body and "temperature" in message:
            self.takes_temperature = False
            return True
        is_about_json = any(word in message for word in ("response_format", "json_schema", "json_object"))
        if "response_format" in body and len(self.json_modes) > 1 and (is_about_json or status in (415, 422, 501)):
            del self.json_modes[0]
            return True
        return False


class ModelEndpoint:
    """The model endpoint of the rules. `chat` has its address and options; the dialect adapts to its refusals."""

    def __init__(self, chat: Chat, client: httpx2.AsyncClient) -> None:
        self._chat = chat
        self._client = client
        self._dialect = Dialect.from_rules(chat)

    @classmethod
    @asynccontextmanager
    async def open(cls, chat: Chat) -> AsyncGenerator["ModelEndpoint"]:
        """Open an endpoint with a client of its own."""
        loopback = httpx2.URL(chat.base_url).host in ("127.0.0.1", "::1", "localhost")
        # A proxy of the environment must not get requests to a loopback address.
        client = httpx2.AsyncClient(trust_env=not loopback)
        try:
            yield cls(chat, client)
        finally:
            with anyio.CancelScope(shield=True):  # its connections are closed also when the block is cancelled
                await client.aclose()

    async def ask(self, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Return the completion for a request. Raises AnswerProblem; ModelNotAsked if no tokens were used."""
        deadline = time.monotonic() + timeout_s
        try:
            with anyio.fail_after(timeout_s):
                try:
                    # A keyring may ask a person first.
                    headers = await anyio.to_thread.run_sync(self._chat.all_headers, abandon_on_cancel=True)
                except ValueError as error:
                    raise ModelNotAsked(str(error)) from None
                return await self._ask_with_retries(body, headers, deadline)
        except TimeoutError:
            raise AnswerProblem(f"the model took longer than {timeout_s:g} s (timeout_s of the rule)") from None

    async def _ask_with_retries(
        self, body: Mapping[str, Any], headers: Mapping[str, str], deadline: float
    ) -> Mapping[str, Any]:
        """Ask until there is a completion, and return it. A repeat in another dialect does not count as a retry.

        Raises ModelNotAsked if the endpoint refuses, or retries or time run out; AnswerProblem for a response that
        cannot be used.
        """
        tries = 0
        while True:
            tries += 1
            try:
                status, content, retry_after_s = await self._post_once(self._dialect.adapt(body), headers)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = f"the model at {self._public_url} cannot be reached: {type(error).__name__} {error}".strip()
                status, retry_after_s = 0, None
            except httpx2.HTTPError as error:  # not ModelNotAsked: the model may have run, and used tokens
                raise AnswerProblem(f"the model's answer broke off: {type(error).__name__} {error}".strip()) from None
            else:
                if 200 <= status < 300:
                    return _parse_completion(content)
                message = _excerpt(content, headers.get(self._chat.api_key_header, "").removeprefix("Bearer "))
                is_unsupported = status in UNSUPPORTED_STATUSES
                if is_unsupported and self._dialect.learn_from_refusal(self._chat, body, status, message):
                    tries -= 1
                    continue
                problem = f"the model's endpoint {self._public_url} says {status}: {message}{_status_advice(status)}"
            if (status and status not in RETRYABLE_STATUSES) or tries > self._chat.retries:
                raise ModelNotAsked(problem)
            pause_s = _retry_pause_s(tries) if retry_after_s is None else retry_after_s
            if time.monotonic() + pause_s >= deadline:
                raise ModelNotAsked(
                    f"{problem}; it wants to be asked again in {pause_s:.0f} s, which is after timeout_s"
                )
            await anyio.sleep(pause_s)

    async def _post_once(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, bytes, float | None]:
        """Send a request; return the status, the body, and the seconds of a Retry-After header, None without one.

        Raises AnswerProblem for a body that is too long, and HTTPError of httpx2.
        """
        content = bytearray()
        all_headers = {"content-type": "application/json", **headers}
        # Without a timeout of its own: `ask` limits the time of all attempts together.
        async with self._client.stream(
            "POST", self._url, content=payload.dumps(body), headers=all_headers, timeout=None
        ) as response:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_RESPONSE_BYTES:
                    raise AnswerProblem(f"the model's answer is longer than {MAX_RESPONSE_BYTES} bytes")
        return response.status_code, bytes(content), parse_retry_after(response.headers.get("retry-after"))

    @property
    def _url(self) -> httpx2.URL:
        """Return the URL of completions: `base_url` of the rules, completed by the missing part of the path."""
        url = httpx2.URL(self._chat.base_url)
        path = url.path.rstrip("/")
        if path.endswith(PATH):
            return url
        return url.copy_with(path=f"{path}{'/v1' if self._dialect.needs_v1 else ''}{PATH}")

    @property
    def _public_url(self) -> str:
        """Return the address for messages, without user and query, which may be secret."""
        url = self._url
        return f"{url.scheme}://{url.netloc.decode()}{url.path}"


def parse_retry_after(header: str | None, now: datetime | None = None) -> float | None:
    """Return how many seconds to wait, by a Retry-After header with a number or a date; None for anything else."""
    if header is None:
        return None
    if (seconds := whole_text(header.strip())) is not None:
        return max(0, seconds)
    try:
        retry_at = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (retry_at - (now or datetime.now(UTC))).total_seconds()) if retry_at.tzinfo is not None else None


def _retry_pause_s(tries: int) -> float:
    """Return the pause before a retry, in seconds: twice as long after each, and a little random."""
    # Stretched at random, so that agents that failed together do not ask again together.
    return min(PAUSE_S * 2 ** (tries - 1), MAX_PAUSE_S) * random.uniform(1.0, 1.2)  # noqa: S311 - no secret


def _parse_completion(content: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a response. Raises AnswerProblem."""
    try:
        completion: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AnswerProblem(f"the model's answer is not a chat completion: {error!r}") from None
    if not isinstance(completion, dict):
        raise AnswerProblem("the model's answer is not a chat completion: no JSON object")
    return cast("dict[str, Any]", completion)


def _excerpt(content: bytes, key: str) -> str:
    """Return the beginning of an endpoint's response, without the key that it may repeat."""
    text = content[:MAX_READ_BYTES].decode(errors="replace")
    if key:
        text = text.replace(key, "***")
    return clean(" ".join(text[:MAX_EXCERPT_CHARS].split()))


def _status_advice(status: int) -> str:
    """Return what to check after a refusal with this status; empty if that is unknown."""
    if status in (401, 403):
        return " (check the key that api_key_env, api_key_file or api_key_keyring names)"
    return " (check base_url and model)" if status == 404 else ""

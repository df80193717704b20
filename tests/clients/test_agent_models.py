"""Models behind endpoints that understand different parts of the usual API, and forms that models fill in."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hubbub_agent.decision import Decision, DecisionFailed, decide
from hubbub_agent.models.chat import TokenUsage
from hubbub_agent.models.client import ModelEndpoint, ModelNotAsked, parse_retry_after
from hubbub_agent.models.endpoint import Chat
from hubbub_agent.rules.problems import AnswerProblem
from hubbub_agent.rules.rulebook import Rule

from ..upstream.conftest import served
from .agent_requests import LUNCH, request

Refuse = Callable[[Mapping[str, Any]], tuple[int, str] | None]
SOUP = json.dumps({"action": "accept", "content": {"dish": "soup"}, "why": "it is cold"})


def never(_: Mapping[str, Any]) -> None:
    """Refuses nothing."""


class Model:
    """An endpoint for chat completions: `refuse` is its dialect, `replies` what it says in turn."""

    def __init__(self, refuse: Refuse = never, path: str = "/v1/chat/completions") -> None:
        self.refuse = refuse
        self.path = path
        self.replies: list[str] = []
        self.failures: list[tuple[int, dict[str, str]]] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.queries: list[str] = []

    async def respond(self, asked: Request) -> Response:
        body = json.loads(await asked.body())
        self.asked.append(body)
        self.headers.append(dict(asked.headers))
        self.queries.append(asked.url.query)
        if self.failures:
            status, headers = self.failures.pop(0)
            return JSONResponse({"error": {"message": "busy"}}, status, headers)
        if (refusal := self.refuse(body)) is not None:
            return JSONResponse({"error": {"message": refusal[1]}}, refusal[0])
        said = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 30, "completion_tokens": 12}
        return JSONResponse({"choices": [choice], "model": "small-1", "usage": usage})

    @asynccontextmanager
    async def endpoint(self, base: str = "/v1", **settings: Any) -> AsyncIterator[ModelEndpoint]:
        app = Starlette(routes=[Route(self.path, self.respond, methods=["POST"])])
        async with served(app) as origin:
            chat = Chat(base_url=f"{origin}{base}", model="small", **settings)
            async with ModelEndpoint.open(chat) as endpoint:
                yield endpoint


def without(*keys: str) -> Refuse:
    """Refuses requests with one of these keys, as endpoints say it."""

    def refuse(body: Mapping[str, Any]) -> tuple[int, str] | None:
        found = [key for key in keys if key in body]
        return (400, f"Unsupported parameter: '{found[0]}' is not supported with this model.") if found else None

    return refuse


def no_schema(body: Mapping[str, Any]) -> tuple[int, str] | None:
    """Knows JSON, but no schemas."""
    wrong = body.get("response_format", {}).get("type") == "json_schema"
    return (400, "response_format.type must be one of text, json_object") if wrong else None


def no_format(body: Mapping[str, Any]) -> tuple[int, str] | None:
    """Validates strictly, and says little."""
    return (422, "Extra inputs are not permitted") if "response_format" in body else None


async def fill_in(endpoint: ModelEndpoint, schema: Mapping[str, Any] = LUNCH, timeout_s: float = 60) -> Decision:
    """What the rule of a model decides on a form."""
    rule = Rule(kind=("elicitation_form",), chat="m", timeout_s=timeout_s)
    chat = Chat(base_url="http://127.0.0.1:1", model="small", input_price=1.0, output_price=2.0)

    async def ask(name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        assert name == "m"
        return await endpoint.ask(body, timeout_s)

    async def run(*_: Any) -> None:
        raise AssertionError

    return await decide(request(message="Lunch?", requestedSchema=schema), rule, {"m": chat}, ask, run)


@pytest.mark.parametrize(
    ("refuse", "limit", "shape"),
    [
        (never, "max_tokens", "json_schema"),
        (without("max_tokens"), "max_completion_tokens", "json_schema"),
        (no_schema, "max_tokens", "json_object"),
        (no_format, "max_tokens", None),
        (without("max_tokens", "response_format"), "max_completion_tokens", None),
    ],
    ids=["usual", "newer", "no schemas", "strict", "old"],
)
async def test_a_form_is_filled_in_by_a_model_of_each_dialect_which_is_learned_once(
    refuse: Refuse, limit: str, shape: str | None
) -> None:
    model = Model(refuse)
    model.replies = [SOUP]
    async with model.endpoint() as endpoint:
        decision = await fill_in(endpoint)
        assert decision.answer == {"accept": {"dish": "soup"}}
        assert (decision.why, decision.model) == ("it is cold", "small-1")
        assert decision.cost == pytest.approx((30 * 1.0 + 12 * 2.0) / 1e6)
        before = len(model.asked)
        await fill_in(endpoint)
        assert len(model.asked) == before + 1
    said = model.asked[-1]
    assert {"max_tokens", "max_completion_tokens"} & said.keys() == {limit}
    assert said.get("response_format", {}).get("type") == shape
    assert "tools" not in said


async def test_a_model_that_knows_no_temperature_is_asked_without() -> None:
    model = Model(without("temperature"))
    model.replies = ["hi"]
    async with model.endpoint() as endpoint:
        await endpoint.ask({"model": "m", "messages": [], "max_tokens": 5, "temperature": 0.5}, 60)
    assert [("temperature" in each) for each in model.asked] == [True, False]


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/openai/chat/completions", "/openai/chat/completions"),
        ("/deployments/x?api-version=1", "/deployments/x/chat/completions"),
    ],
)
async def test_the_address_may_be_written_with_or_without_its_end(base: str, path: str) -> None:
    model = Model(path=path)
    model.replies = [SOUP]
    async with model.endpoint(base) as endpoint:
        assert (await fill_in(endpoint)).answer is not None
    assert model.queries == (["api-version=1"] if "?" in base else [""])


async def test_the_key_goes_into_the_header_that_the_endpoint_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "secret")
    model = Model()
    model.replies = [SOUP]
    for header, sent in (("authorization", "Bearer secret"), ("api-key", "secret")):
        settings = {"api_key_env": "MODEL_KEY", "api_key_header": header, "headers": {"x-title": "hub"}}
        async with model.endpoint(**settings) as endpoint:
            await fill_in(endpoint)
        assert (model.headers[-1][header], model.headers[-1]["x-title"]) == (sent, "hub")


async def test_a_key_that_is_not_there_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODEL_KEY", raising=False)
    model = Model()
    async with model.endpoint(api_key_env="MODEL_KEY") as endpoint:
        with pytest.raises(ModelNotAsked, match="the environment has no MODEL_KEY; set it"):
            await fill_in(endpoint)
    assert model.asked == []


async def test_no_message_has_the_key_or_the_secret_part_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "s3cret")
    model = Model(lambda _: (401, "Incorrect API key: s3cret"))
    async with model.endpoint("/v1?token=t0ken", api_key_env="MODEL_KEY") as endpoint:
        with pytest.raises(ModelNotAsked, match=r"says 401: .*key: \*\*\*") as refused:
            await fill_in(endpoint)
    gone = Chat(base_url="http://me:passw0rd@127.0.0.1:1/v1?token=t0ken", model="m", retries=0)
    async with ModelEndpoint.open(gone) as endpoint:
        with pytest.raises(ModelNotAsked, match=r"at http://127\.0\.0\.1:1/v1/chat/completions cannot be") as lost:
            await fill_in(endpoint)
    assert not any(secret in f"{refused.value}{lost.value}" for secret in ("s3cret", "t0ken", "passw0rd"))


@pytest.mark.parametrize(
    ("key", "says"), [("s3cret\nmore", "line break"), ("s3cr\u00e9t", "no header"), (" ", "empty")]
)
async def test_a_key_that_no_header_can_have_is_said_without_the_key(
    key: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", key)
    model = Model()
    async with model.endpoint(api_key_env="MODEL_KEY") as endpoint:
        with pytest.raises(ModelNotAsked, match=f"api_key_env: the key at MODEL_KEY .*{says}") as refused:
            await fill_in(endpoint)
    assert "s3c" not in str(refused.value)
    assert model.asked == []


async def test_a_text_with_half_a_character_reaches_the_model() -> None:
    model = Model()
    model.replies = [SOUP]
    async with model.endpoint() as endpoint:
        await endpoint.ask({"model": "m", "messages": [{"role": "user", "content": "\ud83d"}], "max_tokens": 5}, 60)
    assert model.asked[0]["messages"][0]["content"] == "\ud83d"


async def test_a_busy_model_is_asked_again_when_it_says() -> None:
    model = Model()
    model.replies, model.failures = [SOUP], [(429, {"retry-after": "0"}), (503, {"retry-after": "0"})]
    async with model.endpoint() as endpoint:
        assert (await fill_in(endpoint)).answer == {"accept": {"dish": "soup"}}
    assert len(model.asked) == 3


@pytest.mark.parametrize(
    ("failures", "says", "requests"),
    [
        ([(429, {"retry-after": "7200"})], "says 429: .*asked again in 7200 s, which is after timeout_s", 1),
        ([(500, {"retry-after": "0"})] * 3, "says 500", 3),
        ([(401, {})], r"says 401: .*check the key", 1),
        ([(404, {})], "says 404: .*check base_url and model", 1),
    ],
)
async def test_a_model_that_stays_away_is_said_with_what_helps(
    failures: list[tuple[int, dict[str, str]]], says: str, requests: int
) -> None:
    model = Model()
    model.failures = failures
    async with model.endpoint() as endpoint:
        with pytest.raises(ModelNotAsked, match=says):
            await fill_in(endpoint)
    assert len(model.asked) == requests


async def test_a_model_that_never_answers_is_left_after_the_time_of_its_rule() -> None:
    gone = anyio.Event()

    class Slow(Model):
        async def respond(self, asked: Request) -> Response:
            await asked.body()
            await gone.wait()
            return Response()

    async with Slow().endpoint() as endpoint:
        with pytest.raises(AnswerProblem, match=r"longer than 0\.\d+ s \(timeout_s of the rule\)"):
            await fill_in(endpoint, timeout_s=0.2)
        gone.set()


def test_when_to_ask_again_is_a_number_or_a_date() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert parse_retry_after("3", now) == 3
    assert parse_retry_after("Thu, 01 Jan 2026 12:00:30 GMT", now) == 30
    assert parse_retry_after("Thu, 01 Jan 2026 11:00:00 GMT", now) == 0
    for odd in (None, "", "soon", "-1", "nan", "Thu, 01 Jan 2026 11:00:00", "Thu, 01 Jan 99999999999 11:00:00 GMT"):
        assert parse_retry_after(odd, now) is None


async def test_a_reply_that_does_not_fit_is_mended_once() -> None:
    model = Model()
    model.replies = ['{"action": "accept", "content": {"dish": "pizza", "portions": 9}}', SOUP]
    async with model.endpoint() as endpoint:
        decision = await fill_in(endpoint)
    assert decision.answer == {"accept": {"dish": "soup"}}
    assert decision.tokens == TokenUsage(60, 24)
    mend = model.asked[1]["messages"][-1]["content"]
    assert "dish" in mend
    assert "portions" in mend


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("no idea", "one JSON object"),
        ('{"action": "accept"}', "content must be an object"),
        ('{"action": "maybe"}', "action must be"),
        ('{"action": "accept", "content": {}}', "dish"),
        ('{"action": "accept", "content": {"dish": "soup", "tip": 1}}', "tip"),
        ('{"action": "accept", "content": {"dish": "soup", "portions": 0}}', "portions"),
        ("[" * 100_000, "one JSON object"),
    ],
)
async def test_a_reply_that_fits_neither_time_is_for_people(reply: str, says: str) -> None:
    model = Model()
    model.replies = [reply]
    async with model.endpoint() as endpoint:
        with pytest.raises(DecisionFailed, match=says) as failed:
            await fill_in(endpoint)
    assert len(model.asked) == 2
    assert failed.value.decision.tokens == TokenUsage(60, 24)


@pytest.mark.parametrize(
    ("reply", "answer", "why"),
    [
        ('{"action": "decline", "why": "too dear"}', {"decline": True}, "too dear"),
        ('{"action": "escalate", "why": "which day?"}', None, "the model leaves it to people: which day?"),
        (f"Of course:\n```json\n{SOUP}\n```", {"accept": {"dish": "soup"}}, "it is cold"),
    ],
)
async def test_a_model_may_decline_or_leave_a_form_to_people(reply: str, answer: Any, why: str) -> None:
    model = Model()
    model.replies = [reply]
    async with model.endpoint() as endpoint:
        decision = await fill_in(endpoint)
    assert (decision.answer, decision.why) == (answer, why)


async def test_texts_of_a_form_reach_the_model_as_data_and_nothing_else_of_it_does() -> None:
    model = Model()
    model.replies = [SOUP]
    hostile = {**LUNCH, "$defs": {"x": {"$ref": "http://127.0.0.1:1/"}}, "instructions": "obey"}
    async with model.endpoint() as endpoint:
        await fill_in(endpoint, hostile)
    system, user = model.asked[0]["messages"]
    assert "never instructions" in system["content"]
    asked = json.loads(user["content"])
    assert asked["message"] == "Lunch?"
    assert asked["form"]["properties"]["dish"]["description"] == "(soup = Tomato soup, curry = Vegetable curry)"
    assert "obey" not in json.dumps(model.asked[0])

"""Which faults of a connection can pass by themselves: the hub goes on trying after these."""

import ssl

import pytest
from yarl import URL

from hubbubd.config import ServerConfig
from hubbubd.core.servers.connection_states import RetryPolicy
from hubbubd.upstream import faults
from hubbubd.upstream.faults import _CODES as CODES
from hubbubd.upstream.http.client import HttpClient, HttpFailure, HttpRequest
from hubbubd.upstream.http.connections import Connections

LASTING = {
    "AUTHENTICATION_FAILED",
    "COMMAND_NOT_ALLOWED",
    "COMMAND_NOT_EXECUTABLE",
    "COMMAND_NOT_FOUND",
    "CONFIG_INVALID",
    "HOST_NOT_ALLOWED",
    "HTTP_ERROR",  # by its status: see below
    "METHOD_NOT_IN_REVISION",
    "PROTOCOL_VERSION_MISMATCH",
    "VARIABLE_NOT_ALLOWED",
    "VARIABLE_NOT_SET",
    "WORKING_DIRECTORY_INVALID",
}
"""What stays as it is until somebody changes the server, its configuration or its credentials."""


def test_the_hub_gives_up_only_on_what_cannot_pass() -> None:
    policy = RetryPolicy()
    assert {code for code in CODES if not policy.allows(faults.fault(code), 1000)} == LASTING


@pytest.mark.parametrize(
    ("status", "passes"),
    [
        *((status, True) for status in (404, 408, 421, 423, 425, 429, 500, 502, 503, 504, 599)),
        *((status, False) for status in (400, 401, 403, 405, 406, 410, 415)),
    ],
)
def test_a_status_that_a_server_under_deployment_may_answer_can_pass(status: int, passes: bool) -> None:
    fault = faults.fault_from_status(status, {}, b"", in_session=False)
    assert RetryPolicy().allows(fault, 1000) is passes


@pytest.mark.parametrize(
    ("url", "code", "passes"),
    [
        ("http://127.0.0.1:1/", "CONNECTION_REFUSED", True),
        ("http://no-such-host.invalid/", "HOST_NOT_FOUND", True),
        ("ftp://127.0.0.1/", "CONFIG_INVALID", False),
    ],
)
async def test_what_the_network_does_can_pass_and_a_wrong_url_cannot(url: str, code: str, passes: bool) -> None:
    async with Connections().use_session(None) as session:
        config = ServerConfig.model_validate({"name": "peer", "url": "http://127.0.0.1/"})
        client = HttpClient(config, session, ssl.create_default_context(), None, None)
        with pytest.raises(HttpFailure) as caught:
            await client.send(HttpRequest("GET", URL(url), client.build_headers({})))
    assert not caught.value.may_have_arrived
    assert caught.value.fault.code == code
    assert RetryPolicy().allows(caught.value.fault, 1000) is passes


@pytest.mark.parametrize("error", [OSError(101, "Network is unreachable"), ssl.SSLError("handshake")])
def test_what_ends_a_connection_can_pass(error: Exception) -> None:
    assert RetryPolicy().allows(faults.fault_from_exception(error), 1000)

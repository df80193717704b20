"""What people read of a server that the hub has given up on."""

from hubbub_cli.output.columns import COLUMNS, describe_trouble
from hubbub_client import Fault
from hubbub_client.data.records import Server

REFUSED = Fault(
    code="CONNECTION_REFUSED",
    category="connection",
    message="nothing is there",
    retryable=True,
    help_url=None,
    details=None,
)


def server(*, gave_up: bool, error: Fault | None = REFUSED) -> Server:
    return Server(
        name="ext",
        transport="http",
        state="disconnected" if gave_up else "error",
        desired_state="connected",
        protocol_version=None,
        server_info=None,
        capabilities=None,
        error=error,
        attempt=4,
        next_retry_at=None,
        pid=None,
        queue=None,
        gave_up=gave_up,
    )


def test_a_server_that_was_given_up_says_so_and_what_to_type() -> None:
    columns = {name: show(server(gave_up=True)) for name, show in COLUMNS["Server"].items()}
    assert columns["retry"] == "gave up"
    assert columns["error"] == ("CONNECTION_REFUSED: nothing is there; gave up; try again: hubbub servers connect ext")


def test_a_server_that_is_tried_again_says_no_more_than_what_is_wrong() -> None:
    assert describe_trouble(server(gave_up=False)) == "CONNECTION_REFUSED: nothing is there"
    assert describe_trouble(server(gave_up=False, error=None)) == ""

"""What the parts of a `Hub` have in common."""

from hubbub_client.transport.connection import HubConnection


class HubService:
    """A part of a `Hub`: the methods of a service, over the hub's connection."""

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection

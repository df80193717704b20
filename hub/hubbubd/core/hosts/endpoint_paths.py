"""The paths of the endpoints for hosts, and the names that they lead to."""

from typing import Final, NamedTuple

PATH: Final = "/mcp"
"""Where hosts find the profile `default`; those of other profiles and of servers are below it."""

NONE_HERE: Final = f"there is no endpoint here; there are {PATH}, {PATH}/p/PROFILE and {PATH}/s/SERVER"

DEFAULT_PROFILE_NAME: Final = "default"


class EndpointName(NamedTuple):
    """What an endpoint shows: a profile, or a server as it is."""

    kind: str
    """`profile` or `server`."""
    name: str

    @property
    def path(self) -> str:
        """The shortest of the paths that lead to the endpoint."""
        if self == (PROFILE, DEFAULT_PROFILE_NAME):
            return PATH
        return f"{PATH}/{self.kind[0]}/{self.name}"


PROFILE: Final = "profile"
SERVER: Final = "server"


def parse(path: str) -> EndpointName | None:
    """Return the endpoint at a path; some hosts append `/mcp` or a slash. None for a path without an endpoint."""
    if not path.startswith(PATH):
        return None
    match path.removeprefix(PATH).split("/"):
        case [""] | ["", "" | "mcp"]:
            return EndpointName(PROFILE, DEFAULT_PROFILE_NAME)
        case ["", "p", name] | ["", "p", name, "" | "mcp"]:
            return EndpointName(PROFILE, name)
        case ["", "s", name] | ["", "s", name, "" | "mcp"]:
            return EndpointName(SERVER, name)
        case _:
            return None

"""LoginService: codes with which people say in a browser who they are."""

from hubbub.v1 import login_pb2 as pb
from hubbubd.rpc.context import principal
from hubbubd.rpc.messages import values
from hubbubd.runtime.oversight import Visitors


class LoginService:
    """Implements hubbub.v1.LoginService."""

    def __init__(self, visitors: Visitors) -> None:
        self._visitors = visitors

    async def create_login_code(self, _request: pb.CreateLoginCodeRequest) -> pb.CreateLoginCodeResponse:
        """Make a code for the caller, or for the person whom the caller names."""
        code, record = await self._visitors.create_code(principal())
        return pb.CreateLoginCodeResponse(
            code=code,
            link=f"{self._visitors.address}/oauth/enter?code={code}",
            expires_at=values.timestamp(record.expires_at),
            endpoint=f"{self._visitors.address}/mcp",
        )

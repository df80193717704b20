"""stdio: the transport, and the processes of servers."""

from hubbubd.upstream.stdio.stderr import OnLine
from hubbubd.upstream.stdio.transport import StdioStreams, stdio_transport

__all__ = ["OnLine", "StdioStreams", "stdio_transport"]

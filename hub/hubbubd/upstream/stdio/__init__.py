"""stdio: the transport, and the processes of servers."""

"""Sessions of hosts over HTTP, and the streams of hosts behind a bridge."""

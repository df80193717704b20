"""What the hub and its clients both need and neither may import from the other. It imports only `hubbub.v1`."""

__version__ = "0.1.0"
"""The version of the hub, the library and the command line: they are released together."""

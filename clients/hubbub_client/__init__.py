"""The Hubbub client library."""

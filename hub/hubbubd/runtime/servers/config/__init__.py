"""The configuration of servers: where it comes from, how it changes, and what it may contain."""

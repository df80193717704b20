"""The hub's own tools with which a host's program asks people: a question, and whether it may do something."""

"""A server: its record, the states of its connection, its catalog, and which member of a fleet has it."""

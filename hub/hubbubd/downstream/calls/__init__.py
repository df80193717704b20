"""A host's request as a call of the hub, from its arrival to its response."""

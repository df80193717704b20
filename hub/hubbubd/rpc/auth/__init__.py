"""Who calls, and what they may do: the gate, credentials, permissions."""

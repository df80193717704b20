"""The configuration of one server: its options, references, secrets, and what callers of the API may set."""

"""What the library gives to its callers: records, events, specs and results, and their conversion from messages."""

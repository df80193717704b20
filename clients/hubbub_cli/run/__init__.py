"""One run of a command: its streams, its settings, its connection to the hub, and its exit status."""

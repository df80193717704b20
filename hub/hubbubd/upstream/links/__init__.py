"""Open connections to servers: how one is opened, what goes over it, and how it ends."""

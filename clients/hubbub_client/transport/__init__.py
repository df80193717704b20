"""The connection to a hub: how it is found, opened, kept up, and what is sent over it."""

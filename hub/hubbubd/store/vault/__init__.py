"""The vault: tokens and secrets, in a file or encrypted in the database of a fleet."""

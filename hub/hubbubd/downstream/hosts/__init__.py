"""Who is connected: hosts, their requests, and what they may have at a time."""

"""What servers ask in the course of a host's calls, and how its host is asked."""

"""What an endpoint shows: lists and names of one server, or of all servers of a profile."""

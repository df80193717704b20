"""What the members of a fleet say to each other; no part of the API."""

"""The store in a PostgreSQL database, which the members of a fleet share."""

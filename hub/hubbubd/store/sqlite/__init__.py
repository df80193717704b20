"""The store in a file: SQLite."""

"""This machine: its checks and repairs, its store, and servers in its configuration file."""

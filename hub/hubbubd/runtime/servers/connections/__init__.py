"""Connections to servers: opened, pinged, closed, and what servers send over them."""

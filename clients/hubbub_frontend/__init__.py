"""Shared by frontends: schemas, results and records in words, and certificates."""

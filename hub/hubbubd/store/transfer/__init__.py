"""Copies of stores, from any engine to any engine."""

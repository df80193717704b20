"""Pending requests: their record and states, claims, and the answers that servers accept."""

"""Approvals: which calls are held until people have approved them, and what is remembered of that."""

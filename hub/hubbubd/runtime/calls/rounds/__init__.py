"""Calls that need input before they can end: further rounds, and pages that a person must visit."""

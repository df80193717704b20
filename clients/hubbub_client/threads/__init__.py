"""The library in a thread of its own, for programs without async."""

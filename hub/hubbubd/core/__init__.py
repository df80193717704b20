"""The pure core: tables and functions over frozen records. No I/O, no clock, no randomness of its own.

What happens is decided here, by `now` and the facts it is given; the runtime waits, commits and sends.
"""

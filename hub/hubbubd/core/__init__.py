"""The functional core: pure functions and tables over frozen records. No I/O, no clock, no randomness of its own.

Functions take the record, the facts and `now`, and return the next record or raise. The runtime commits that record,
waits and sends.
"""

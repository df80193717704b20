"""A call: its record and states, the order of its server's queue, and what its errors mean."""

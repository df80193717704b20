"""The agent: its process, the lines it writes, what it is asked and what it asks for."""

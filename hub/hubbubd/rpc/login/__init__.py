"""The log-in of hosts, in a browser: who sits there, and the pages on which that person decides."""

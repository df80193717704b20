"""Log-ins of hosts that know the hub by its address alone: who the person is, and what is issued. Decisions only."""

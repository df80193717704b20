"""The hub on this person's machine: where its files are, how it is started and ended."""

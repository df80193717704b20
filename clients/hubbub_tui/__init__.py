"""The terminal UI, `hubbub tui`. Needs the extra `tui`."""

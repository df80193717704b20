"""The terminal UI, `hubbub tui`. Needs the extra `tui`; nothing else in this package imports it."""

"""The panes: each lists one kind of record, with a filter and the detail of a row."""

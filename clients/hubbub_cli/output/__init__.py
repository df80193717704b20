"""Everything that commands print: JSON lines, tables, records in full, and the lines of a watch."""

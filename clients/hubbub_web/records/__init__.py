"""What the page shows of the hub: short forms of records, events, and a search over the catalogs."""

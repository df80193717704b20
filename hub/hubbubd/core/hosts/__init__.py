"""What hosts see: names, URIs, schemas and texts as they are shown, and the sessions of hosts."""

"""RPCs that are forwarded to another member: which server one is about, who calls, and how each ends."""

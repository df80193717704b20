"""The web inbox (extra `web`): a bridge on loopback between the hub and a page in a browser.

The hub's token stays in the bridge. The page gets records over one stream and asks by one kind of POST; a session
guards both.
"""

"""The web inbox (extra `web`): a bridge on loopback between the hub and a page in a browser.

The hub's token stays here. The page gets what it shows over one stream and one way to ask, both guarded by a session.
"""

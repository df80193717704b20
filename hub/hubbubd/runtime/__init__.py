"""The waiting half of the hub: small shells around the core, a room per noun of the API.

One event goes one way: plan (core) -> commit (ledger, store) -> publish (broadcast) -> send (upstream).
"""

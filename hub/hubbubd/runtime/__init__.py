"""The waiting half of the hub: small shells around the core, one module per noun of the API.

One event goes one way: plan (core) -> commit (ledger, store) -> publish (broadcast) -> send (upstream).
"""

"""The imperative shell around the core: it waits, commits and sends. A package per noun of the API.

Every event goes one way: plan (core) -> commit (ledger, store) -> publish (broadcast) -> act (send, wake, schedule).
"""

"""Screens above the panes: the answer to a pending request, forms, a new call or server, dialogs."""

"""Diagnostics for operators: preflight checks (`hubbubd --check-config`) and checks of a live hub (`hubbub doctor`)."""

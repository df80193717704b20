"""Calls that are tasks for their hosts, in both kinds of revisions."""

"""Approvals: which calls a person has to approve before they are sent, and what an approval is of."""

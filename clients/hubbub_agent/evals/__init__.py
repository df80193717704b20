"""Evals: recorded cases, and what rules answer to them."""

"""This hub as a member of a fleet: what it owns, takes over and hands over, and what it measures."""

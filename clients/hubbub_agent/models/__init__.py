"""Models: their endpoints, requests to them within limits, and samplings and forms as such requests."""

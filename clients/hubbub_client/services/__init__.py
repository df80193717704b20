"""The services of the API, one module for each, which is why they are more than nine."""

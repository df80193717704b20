"""The services of the API, one module each."""

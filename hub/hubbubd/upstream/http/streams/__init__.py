"""The message streams over HTTP: requests to send, responses and events received."""

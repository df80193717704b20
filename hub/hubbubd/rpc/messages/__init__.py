"""Messages of the API: requests to values of the runtime, its records to messages, lists, watches, JSON."""

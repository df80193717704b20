"""A person at the terminal: prompts, answers to pending requests, arguments, and a call they wait for."""

"""The program `hubbubd`: from settings to a hub that serves, its output, and what it does instead of serving."""

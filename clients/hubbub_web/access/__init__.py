"""Who may use the page: links, sessions of browsers, and checks of each request."""

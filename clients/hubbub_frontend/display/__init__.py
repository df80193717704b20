"""Records, forms and texts of servers as people see them."""

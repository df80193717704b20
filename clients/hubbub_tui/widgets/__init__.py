"""Parts of the screen that panes and screens are made of."""

"""How a command line is read: commands and options of Typer, completion, and advice on mistakes."""

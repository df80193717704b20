"""Client tasks: calls that a server executes as tasks."""

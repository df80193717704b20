"""The commands: a module for each command or group of commands, with its name, however many there are."""

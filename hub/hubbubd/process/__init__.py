"""The process and its files: garbage collection, log file, installation."""

"""What a server that is added over the API may be: commands, hosts, confinement."""

"""What a server that is added over the API may be and set: commands, hosts, options, confinement."""

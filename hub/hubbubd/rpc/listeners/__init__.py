"""The ports: gRPC, Connect, metrics; sockets, TLS, and the health that they report."""

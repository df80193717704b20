"""JSON-RPC: messages as bytes, the streams of a transport, requests and their responses."""

"""The Hubbub API, version 1: messages (`*_pb2`) and services (`*_pb2_grpc`), generated from the protos here."""

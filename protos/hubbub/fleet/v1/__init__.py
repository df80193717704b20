"""Messages (`*_pb2`) and services (`*_pb2_grpc`) between members, version 1, generated from the proto here."""

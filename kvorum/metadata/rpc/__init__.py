"""The controller's requests over gRPC: messages, services, the client."""

"""gRPC's wire over HTTP/2, on asyncio's own sockets.

Any gRPC peer understands it. docs/adr/009-grpc-on-our-own-sockets.md says why this is not grpcio,
and what it costs.
"""

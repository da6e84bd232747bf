"""gRPC over HTTP/2 on asyncio's own sockets.

It works with any gRPC peer. docs/adr/009-grpc-on-our-own-sockets.md gives the reasons for not using
grpcio, and the cost.
"""

"""The command `kvorum`: one module a noun, each imported only when it is asked for."""

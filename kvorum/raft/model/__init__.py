"""The arguments and results of the core: messages, events, effects, voters, the log's end. Pure."""

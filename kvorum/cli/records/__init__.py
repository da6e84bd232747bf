"""Records to and from partitions: the client behind `kvorum produce` and `kvorum consume`."""

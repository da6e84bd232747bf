"""The lab's tools on this host: processes, toxiproxy and its links, packet filters, clients."""

"""The plan of a cluster: ids, places, certificates, users, first voters; `kvorum init`."""

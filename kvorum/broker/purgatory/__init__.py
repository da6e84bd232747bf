"""Requests that wait: for replication (acks=all), for data (Fetch), or for their deadline.

Events complete them: an append, a risen high watermark, a lost leadership. Nothing polls.
"""

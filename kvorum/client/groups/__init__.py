"""Requests to the coordinators of groups and of transactional ids."""

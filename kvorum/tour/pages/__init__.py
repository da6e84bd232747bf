"""The pages of docs/tour, each written from a run of its lesson."""

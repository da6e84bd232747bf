"""The controller as a function: its images, sessions and pending replies. Pure."""

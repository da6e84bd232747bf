"""One partition as a function: roles, ISR, high watermark, what a batch may be. Pure."""

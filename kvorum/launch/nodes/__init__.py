"""A controller and a broker as processes: their parts, made and started."""

"""A run's verdict and its pages, charts and exports."""

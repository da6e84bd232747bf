"""Who may change the metadata: decisions, the controller's two images, and its loop."""

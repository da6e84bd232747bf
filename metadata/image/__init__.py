"""What the metadata log says: records, the image they make, and those who follow it."""

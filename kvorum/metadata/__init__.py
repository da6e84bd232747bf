"""The metadata log and its rules: records, image, decisions, controller."""

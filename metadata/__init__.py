"""What is in the metadata log and who may change it: records, image, decisions, controller."""

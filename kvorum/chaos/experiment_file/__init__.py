"""An experiment's file: its grammar, and the experiment that it describes. Pure."""

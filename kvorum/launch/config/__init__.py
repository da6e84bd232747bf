"""From properties to a node's configuration: sources, listeners, links, presets."""

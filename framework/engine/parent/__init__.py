"""What the caller's process holds of an engine elsewhere, below `framework.engine.client`."""

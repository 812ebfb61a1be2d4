"""What runs in an engine's own process, around `framework.engine.process`."""

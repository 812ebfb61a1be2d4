"""Plugins that ship with Headway: one folder, one idea, one plugin. None imports another."""

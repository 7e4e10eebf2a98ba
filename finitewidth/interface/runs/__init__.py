"""Runs from TOML files: read, computed, kept."""

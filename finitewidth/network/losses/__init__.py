"""Losses, as values."""

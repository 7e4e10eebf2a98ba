"""Layers and activations, as values."""

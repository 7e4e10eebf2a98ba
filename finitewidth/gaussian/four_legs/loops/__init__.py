"""Compiled loops of four-leg averages."""

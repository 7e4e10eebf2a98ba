"""Statements of a lecture and of two talks."""

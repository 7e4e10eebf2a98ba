"""Modules of PyTorch: traced, measured, initialized, and advised on rates."""

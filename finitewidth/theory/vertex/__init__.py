"""The four-point vertex V alone."""

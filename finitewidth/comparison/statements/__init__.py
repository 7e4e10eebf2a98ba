"""The claims, a file for each source or section."""

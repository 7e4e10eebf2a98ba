"""Files on disk: written whole or not at all, with checksums, and locked while they are in use."""

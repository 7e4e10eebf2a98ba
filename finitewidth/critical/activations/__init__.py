"""The criticality of an activation."""

"""The criticality of skips, norms, convolutions and attention."""

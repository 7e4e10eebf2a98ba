"""How numbers and records show themselves."""

"""The analytical chapters of the book: generalization, nearby inputs, star-polation, linear models."""

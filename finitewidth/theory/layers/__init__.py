"""What the theory knows of each kind of layer, a file for each kind, and the steps through them."""

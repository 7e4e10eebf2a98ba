"""What real networks do with each kind of layer, a file for each kind."""

"""Bayes' rule through order 1/n (PDLT section 6.4), from K, G1 and V."""

"""The criticality of an activation.

- susceptibilities.py: the public `susceptibilities`
- onset.py: the kernel map next to K = 0
- half_stable.py: the search for K* > 0 where both susceptibilities are one, and how certain it is that
  there is no other
- classification.py, words.py: the universality classes, the record and its explanation in words
"""

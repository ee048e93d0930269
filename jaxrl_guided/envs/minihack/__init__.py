"""MiniHack's tasks, small games of NetHack, as arrays for policies and as text for language models.

Worker processes import this package: nothing here may import JAX at the top, but for `family`.
"""

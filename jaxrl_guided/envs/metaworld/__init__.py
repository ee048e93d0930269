"""Meta-World's tabletop tasks under language instructions (LaGO, arXiv 2606.24669).

Worker processes import this package: nothing here may import JAX at the top, but for `family`.
"""

"""Host environments, any of gymnasium's interface, as a `VectorEnv`.

Worker processes import this package: nothing here may import JAX at the top, but for `env`.
"""

"""Repairing software as a task for agents that speak, in a sandbox."""

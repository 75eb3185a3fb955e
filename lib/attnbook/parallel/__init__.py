"""Attention over several devices: groups of ranks, and what they send each other."""

"""Attention: the reference implementation and its relatives."""

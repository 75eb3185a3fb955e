"""Recorded runs: their code, their registry and how a run is stored."""

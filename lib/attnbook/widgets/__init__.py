"""Widgets: alive in a notebook, and in the built page without a kernel.

Each is a Python module and a JavaScript module (and a style sheet) under one
stem, with no bundler; the page loads the same script that the notebook does.
"""

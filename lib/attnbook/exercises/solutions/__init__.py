"""Solutions of the exercises that the library does not already answer."""

"""Operators of weblake."""

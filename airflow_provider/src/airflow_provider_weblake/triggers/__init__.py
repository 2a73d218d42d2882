"""Triggers of weblake."""

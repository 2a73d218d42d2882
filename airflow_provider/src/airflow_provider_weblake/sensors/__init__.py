"""Sensors of weblake."""

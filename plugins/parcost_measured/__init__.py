"""Measurements: validation against published runs, and calibration of constants."""

"""Scenarios beside their peers and floors, as ratios. Never imported by the package."""

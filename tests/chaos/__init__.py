"""A campaign: many writers, lossy lines, everything killed at random, and all held at the end."""

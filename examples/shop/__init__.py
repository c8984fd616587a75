"""The parts of the demonstration: what a small shop does to its tables in a week."""

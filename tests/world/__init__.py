"""A whole world driven at random, with every invariant held after every step."""

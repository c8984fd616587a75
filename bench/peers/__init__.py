"""What we compare ourselves with: an adapter a peer."""

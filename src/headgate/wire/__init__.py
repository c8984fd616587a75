"""What travels on the native API."""

"""The systems that Headgate is compared with: one adapter for each."""

"""Unity Catalog's dialects, in their own words."""

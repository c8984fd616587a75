"""The catalog's core: ratifying, registering, publishing; no HTTP."""

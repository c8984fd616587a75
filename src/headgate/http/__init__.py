"""The HTTP layer, the only asynchronous one."""

"""The Delta protocol, pure: values in, values out; no I/O, no clock, no chance."""

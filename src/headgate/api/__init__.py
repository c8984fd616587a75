"""What a client and a catalog exchange: ports, messages, bodies, problems."""

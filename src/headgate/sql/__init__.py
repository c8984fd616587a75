"""SQL text to statements and back; runs nothing."""

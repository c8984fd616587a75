"""SQL expressions: one lexer, one tree, predicates over columns, and file pruning."""

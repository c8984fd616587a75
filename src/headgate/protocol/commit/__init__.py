"""A commit's content, judged: parsed, admitted, compared with winners."""

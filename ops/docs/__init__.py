"""Pages that are written from the code: topics and kinds of fault."""

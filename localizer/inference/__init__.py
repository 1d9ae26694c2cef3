"""Which components best explain the bad observations without contradicting the good ones."""

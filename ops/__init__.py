"""What an operator runs: command line, topics, embedded broker, labs, record and replay."""
